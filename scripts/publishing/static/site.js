// The versions next to this one, images that open at their full size, and buttons that copy code.
"use strict";

addEventListener("DOMContentLoaded", async () => {
  for (const image of document.querySelectorAll("article img")) {
    if (image.closest("a")) continue;
    const link = document.createElement("a");
    link.href = image.src;
    link.className = "opens";
    image.replaceWith(link);
    link.append(image);
  }

  for (const block of document.querySelectorAll("article div.highlight")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copies";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      // Of a terminal: what is typed, without prompts and answers.
      const lines = block.querySelector("pre").textContent.trimEnd().split("\n");
      const typed = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
      await navigator.clipboard.writeText((block.closest(".highlight-console") ? typed : lines).join("\n"));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    block.append(button);
  }

  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const list = document.querySelector(".versions");
  const mine = decodeURIComponent(root.pathname.split("/").at(-2));
  let names;
  if (location.protocol === "file:") return; // browsers fetch nothing there
  try {
    names = await (await fetch(new URL("../versions.json", root))).json();
  } catch {
    return; // this version is published alone
  }
  if (!names.includes(mine)) return;
  const select = list.querySelector("select");
  select.append(...names.map((name) => new Option(name, name, name === mine, name === mine)));
  list.hidden = false;
  select.addEventListener("change", async () => {
    const page = new URL(`../${encodeURIComponent(select.value)}/`, root);
    const same = new URL(location.pathname.slice(root.pathname.length), page);
    const there = await fetch(same, { method: "HEAD" }).then((answer) => answer.ok, () => false);
    location.href = there ? same : page;
  });
});
