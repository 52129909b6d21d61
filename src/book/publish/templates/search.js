// Finds sections that hold every word of the question, numbers with or without their commas, and shows where.
document.addEventListener("DOMContentLoaded", () => {
  const plain = (text) => text.toLowerCase().replace(/(\d),(?=\d{3})/g, "$1");
  const question = (new URLSearchParams(location.search).get("q") || "").trim();
  const place = document.getElementById("search-results");
  for (const input of document.querySelectorAll('input[name="q"]')) input.value = question;
  const asked = plain(question).split(/\s+/).filter(Boolean);
  const note = document.createElement("p");
  place.replaceChildren(note);
  if (!asked.length) {
    note.textContent = "Type a word, a name from a config.json, or a number.";
    return;
  }
  const found = [];
  for (const [page, anchor, chapter, title, text] of window.BOOK_SECTIONS) {
    const name = plain(`${chapter} ${title}`), body = plain(text);
    let score = 0;
    const all = asked.every((word) => {
      const inBody = body.split(word).length - 1, inName = name.includes(word);
      score += Math.min(inBody, 10) + (inName ? 20 : 0);
      return inBody || inName;
    });
    if (all) found.push({ score, page, anchor, chapter, title, text });
  }
  found.sort((a, b) => b.score - a.score);
  note.textContent = found.length
    ? `${found.length} section${found.length > 1 ? "s" : ""} with ${asked.map((w) => `"${w}"`).join(" and ")}:`
    : `Nothing has ${asked.map((w) => `"${w}"`).join(" and ")} in one section.`;
  const list = document.createElement("ul");
  list.className = "search";
  for (const { page, anchor, chapter, title, text } of found.slice(0, 60)) {
    const item = document.createElement("li"), link = document.createElement("a"), quote = document.createElement("p");
    link.href = anchor ? `${page}#${anchor}` : page;
    link.textContent = title && title !== chapter ? `${chapter}: ${title}` : chapter;
    quote.className = "context";
    excerpt(quote, text, asked);
    item.append(link, quote);
    list.append(item);
  }
  place.append(list);

  // About 180 characters around the first word asked for, each of them marked. Commas in numbers are kept as they are printed.
  function excerpt(node, text, words) {
    const pattern = words.map((w) => [...w].map((c) => c.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(",?")).join("|");
    const hit = new RegExp(pattern, "i").exec(text);
    const start = Math.max(0, (hit ? hit.index : 0) - 80), piece = text.slice(start, start + 180);
    let at = 0;
    node.append(start ? "… " : "");
    for (const match of piece.matchAll(new RegExp(pattern, "gi"))) {
      const mark = document.createElement("mark");
      mark.textContent = match[0];
      node.append(piece.slice(at, match.index), mark);
      at = match.index + match[0].length;
    }
    node.append(piece.slice(at), start + 180 < text.length ? " …" : "");
  }
});
