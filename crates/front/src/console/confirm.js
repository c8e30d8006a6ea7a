// The dialog that shows a change before it runs.

import { one } from "./api.js";
import { asLine } from "./text.js";

/** Shows a text and asks whether to go on. Returns the answer. `error` is the server's error at the attempt before. */
export async function agreed(text, why = "", error = "") {
  const dialog = document.querySelector("#confirm");
  dialog.querySelector(".error").textContent = error;
  dialog.querySelector("pre").textContent = text;
  dialog.querySelector(".why").textContent = why;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  return dialog.returnValue === "yes";
}

/** Shows a command, and runs it if the user agrees. Returns true if it ran. */
export async function confirmed(command, why = "") {
  if (!(await agreed(asLine(command), why))) return false;
  await one(...command);
  return true;
}

/** Runs a command of a button if the user agrees, and then calls `done`. If the command fails, the dialog shows the error and asks again. */
export async function offered(command, why, done) {
  let error = "";
  while (await agreed(asLine(command), why, error)) {
    try {
      await one(...command);
      return done();
    } catch (failure) {
      error = failure.message;
    }
  }
  return null;
}
