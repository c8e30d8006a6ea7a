// What changes something is shown before it runs.

import { one } from "./api.js";
import { asLine } from "./text.js";

/** Asks whether to run a command; runs it then. Answers whether it did. */
export async function confirmed(command, why = "") {
  const dialog = document.querySelector("#confirm");
  dialog.querySelector("pre").textContent = asLine(command);
  dialog.querySelector(".why").textContent = why;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "yes") return false;
  await one(...command);
  return true;
}
