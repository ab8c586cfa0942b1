// Ranks what the search of Sphinx finds, one result for each page: titles before text, pages with all words before pages
// with some, pages for contributors last. RANKING is of searching.py; the index is Sphinx's own.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const ASIDE = new Set("can could do does get got how i like many me much my should use want what when where which why you your".split(" "));
  const TITLE = 4, ABOUT = 4, HEADING = 2, TEXT = 1; // what a word counts, by where it is
  const PARTLY = 0.5; // of that, for a part of a word
  const FEW = 5; // fewer pages with all words than that, and pages with some are listed too

  const stemmer = new Stemmer();
  const words = (text) =>
    splitQuery(text.toLowerCase())
      .filter((word) => !stopwords.has(word) && !/^\d+$/.test(word))
      .map((word) => stemmer.stemWord(word));
  const askedFor = (query) => {
    const kept = words(splitQuery(query.toLowerCase()).filter((word) => !ASIDE.has(word)).join(" "));
    return [...new Set(kept.length ? kept : words(query))];
  };
  const files = (listed) => (listed === undefined ? [] : [].concat(listed));

  // How much of a word is among others: all, a part, or nothing.
  const match = (word, others) =>
    others.includes(word) ? 1 : word.length > 2 && others.some((other) => other.startsWith(word)) ? PARTLY : 0;

  function pagesOfIndex(index) {
    const pages = new Map();
    Object.keys(RANKING).forEach((name, place) => {
      const file = index.docnames.indexOf(name);
      if (file < 0) return;
      const { titles, about, late } = RANKING[name];
      const named = [index.titles[file], ...titles].map(words);
      pages.set(file, { place, late, titles: named, about: words(about), headings: [] });
    });
    for (const [heading, places] of Object.entries(index.alltitles))
      for (const [file, id] of places)
        if (id !== null) pages.get(file)?.headings.push({ heading, id, words: words(heading) });
    return pages;
  }

  // Which files have a word in their text, and how much of it.
  function inText(index, word) {
    const having = new Map();
    const exact = Object.hasOwn(index.terms, word);
    const like = exact ? [word] : word.length > 2 ? Object.keys(index.terms).filter((term) => term.includes(word)) : [];
    for (const term of like) for (const file of files(index.terms[term])) having.set(file, exact ? 1 : PARTLY);
    return having;
  }

  function rank(query) {
    const index = Search._index;
    const asked = askedFor(query);
    const pages = pagesOfIndex(index);
    const texts = asked.map((word) => inText(index, word));
    const counts = asked.map((word, at) => {
      const places = [...pages].map(([file, page]) => ({
        titles: page.titles.map((title) => match(word, title)),
        about: match(word, page.about),
        heading: Math.max(0, ...page.headings.map((heading) => match(word, heading.words))),
        text: texts[at].get(file) ?? 0,
      }));
      const having = places.filter((at) => Math.max(...at.titles, at.about, at.heading, at.text) > 0).length;
      return { places, rare: Math.log(1 + pages.size / (having || 1)) }; // a word of few pages says more
    });

    const ranked = [...pages].map(([file, page], at) => {
      const here = counts.map(({ places, rare }) => ({ ...places[at], rare }));
      const has = here.filter((word) => Math.max(...word.titles, word.about, word.heading, word.text) > 0).length;
      const title = page.titles.map((words, which) => {
        const matched = here.filter((word) => word.titles[which] > 0).length;
        const weight = here.reduce((sum, word) => sum + word.rare * word.titles[which], 0);
        const nothingElse = matched / (words.length || 1); // worth more, and so is a title with all the words
        return TITLE * weight * (matched === here.length ? 2 : 1) * (1 + nothingElse);
      });
      const rest = here.reduce(
        (sum, { rare, about, heading, text }) => sum + rare * (ABOUT * about + HEADING * heading + TEXT * text), 0);
      return { file, page, all: has === here.length, has, score: (Math.max(...title) + rest) * (has / here.length) };
    }).filter(({ has }) => has > 0);

    ranked.sort((a, b) => b.score - a.score || a.page.place - b.page.place);
    const [early, late] = [false, true].map((late) => ranked.filter(({ page, all }) => all && page.late === late));
    const some = early.length + late.length < FEW ? ranked.filter(({ all }) => !all) : [];
    const result = ({ file, page, score }) => {
      // The heading that is about nothing else, where the page's own title has not all the words.
      const about = ({ words }) => asked.every((word) => match(word, words)) && asked.length > words.length / 2;
      const heading = about({ words: page.titles[0] }) ? undefined : page.headings.find(about);
      const title = index.titles[file];
      return [
        index.docnames[file], heading && heading.heading !== title ? `${title} > ${heading.heading}` : title,
        heading ? `#${heading.id}` : "", null, score, index.filenames[file], heading ? "title" : "text",
      ];
    };

    const terms = new Set(splitQuery(query.toLowerCase()));
    const objects = [...terms].flatMap((term) =>
      Search.performObjectSearch(term, terms).filter(([, name]) => name.split(".").pop().toLowerCase().includes(term)));
    objects.sort((a, b) => b[4] - a[4] || a[1].length - b[1].length);
    const isCode = /[a-z][A-Z]|_|\./.test(query.trim()) && !/\s/.test(query.trim());
    const meant = ([, name]) => isCode && (name === query.trim() || name.endsWith(`.${query.trim()}`));
    const isPublic = ([, name]) => name.startsWith("rawpack.");
    const seen = new Set();
    return [
      ...objects.filter(meant), ...early.map(result), ...objects.filter(isPublic), ...late.map(result),
      ...[...some].sort((a, b) => a.page.late - b.page.late).map(result), ...objects,
    ].filter((item) => {
      const key = item[0] + item[2];
      return !seen.has(key) && seen.add(key);
    });
  }

  Search._performSearch = (query) => rank(query).reverse(); // it shows the last of them first
});
