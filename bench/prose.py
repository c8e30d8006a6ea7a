#!/usr/bin/env python3
"""Measures how plainly comments and pages are written, and fails where they exceed the limits.

    bench/prose.py                      every comment (.rs) and page (.md) of the repository
    bench/prose.py --worst 20 PATH...   only these files and folders, with the 20 sentences to rewrite first

Three symptoms of text that is hard to read are counted, each as a share of all sentences in percent:

    what      the sentence contains the word "what" (limit 2)
    openers   the sentence begins with What, Whether, Where, Which, How, As, That, Those, It, So or "The same" (limit 5)
    chains    the sentence has a relative chain, for example "of which", "that of" or "is yet to" (limit 2.5)

Well-written projects of this field stay below these limits. The figures are a thermometer: a sentence is good when a stranger understands
it at the first reading, and exchanging single words does not make it so.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Shares of sentences, in percent.
LIMITS = {"what": 2.0, "openers": 5.0, "chains": 2.5}

SYMPTOMS = {
    "what": re.compile(r"\bwhat\b", re.IGNORECASE),
    "openers": re.compile(r"^[-*>\d. ]*(What|Whether|Where|Which|How|As|That|Those|It|So|The same)\b"),
    "chains": re.compile(
        r"\b(that of|those of|of which|by which|to which|with which|in which|is to be|are to be|is yet to"
        r"|such|as if|lest|whose|none of|whatever|whichever)\b",
        re.IGNORECASE,
    ),
}

# Folders with texts of others, and results of measurements.
SKIPPED = ("third_party/", "bench/results/", "interop/node/node_modules/")

SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+")
COMMENT = re.compile(r"\s*//[/!]? ?(.*)")
BLOCK_START = re.compile(r"\s*[-*\d.]+ ")


def comment_blocks(lines):
    """Yields each run of comment lines as (line number, text)."""
    block, start = [], 0
    for number, line in enumerate([*lines, ""], 1):
        comment = COMMENT.match(line)
        if comment:
            start = start if block else number
            block.append(comment.group(1))
        elif block:
            yield start, " ".join(block)
            block = []


def page_blocks(lines):
    """Yields each paragraph and list item of a page as (line number, text), without code blocks, tables and headings."""
    block, start, in_code = [], 0, False
    for number, line in enumerate([*lines, ""], 1):
        fence = line.lstrip().startswith("```")
        in_code ^= fence
        is_text = line.strip() and not fence and not in_code and not line.startswith(("|", "#"))
        if block and (not is_text or BLOCK_START.match(line)):
            yield start, " ".join(block)
            block = []
        if is_text:
            start = start if block else number
            block.append(line.strip())


def sentences(path):
    """Yields the sentences of a file, longer than two words, as (path, line number, sentence)."""
    lines = path.read_text(errors="replace").splitlines()
    blocks = comment_blocks if path.suffix == ".rs" else page_blocks
    for start, text in blocks(lines):
        for sentence in SENTENCE_END.split(text):
            if len(sentence.split()) > 2:
                yield path, start, sentence


def tracked_files(paths):
    """Returns the tracked source files and pages under the given paths."""
    listing = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--", *(str(Path(path).resolve()) for path in paths)],
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    wanted = (name for name in listing if name.endswith((".rs", ".md")) and not name.startswith(SKIPPED))
    return [ROOT / name for name in wanted if (ROOT / name).exists()]


def weight(sentence):
    """Returns how urgently a sentence needs rewriting."""
    symptoms = sum(len(pattern.findall(sentence)) for pattern in SYMPTOMS.values())
    return 2 * symptoms + max(0, len(sentence.split()) - 25) / 10


def report(kind, found):
    """Prints the shares of one kind of text. Returns False if one exceeds its limit."""
    if not found:
        return True
    texts = [sentence for _, _, sentence in found]
    shares = {name: 100 * sum(map(bool, map(pattern.search, texts))) / len(texts) for name, pattern in SYMPTOMS.items()}
    words = sum(len(text.split()) for text in texts) / len(texts)
    figures = ", ".join(f"{name} {share:.1f} % (limit {LIMITS[name]})" for name, share in shares.items())
    print(f"{kind}: {len(texts)} sentences, {figures}, {words:.1f} words a sentence")
    return all(share <= LIMITS[name] for name, share in shares.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="list the N sentences to rewrite first")
    parser.add_argument("paths", nargs="*", default=[ROOT])
    options = parser.parse_args()
    comments, pages = [], []
    for path in tracked_files(options.paths):
        (comments if path.suffix == ".rs" else pages).extend(sentences(path))
    holds = [report("comments", comments), report("pages", pages)]
    for path, line, sentence in sorted(comments + pages, key=lambda row: -weight(row[2]))[: options.worst]:
        print(f"  {path.relative_to(ROOT)}:{line}: {sentence[:200]}")
    if not all(holds):
        print("Rewrite the worst sentences: bench/prose.py --worst 40 FOLDER lists them.")
    sys.exit(0 if all(holds) else 1)


if __name__ == "__main__":
    main()
