// The page of `polysift report`. All data stands in the element `data`, gzipped; nothing is loaded. Texts, ids, URLs and domains
// come from crawled pages: they reach the document as text nodes only, never as markup.
'use strict';
(async () => {
const zipped = Uint8Array.from(atob(document.getElementById('data').textContent), c => c.charCodeAt(0));
const data = await new Response(new Blob([zipped]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
const languages = data.languages ?? [];
const byCode = new Map(languages.map(lang => [lang.language, lang]));
const weight = data.weight ?? 'documents';
const isPublished = data.mode === 'published'; // thresholds come from a sample that the page does not have
const QUANTITIES = ['documents', 'bytes', 'tokens'];
const FEW = 30; // up to as many languages, figures of all are shown side by side
/** Whether a total of these languages has no tokens: none has any, or some have documents whose tokens were not counted. */
const lacksTokens = langs => langs.every(lang => lang.tokens == null) || langs.some(lang => lang.documents && lang.tokens == null);
const noTokens = lacksTokens(languages);

// ---------------------------------------------------------------- elements and numbers

/** An element with attributes (functions: listeners) and children (strings become text). */
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter(child => child != null && child !== false).map(child =>
    child instanceof Node ? child : String(child)));
  return element;
}

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const isNumber = value => typeof value === 'number' && Number.isFinite(value);
const count = value => isNumber(value) ? whole.format(value) : '–';
const number = (value, digits = 3) => typeof value === 'string' ? value : !isNumber(value) ? '–' : Number.isInteger(value) ? whole.format(value)
  : Math.abs(value) >= 1000 ? whole.format(value) : String(Number(value.toPrecision(digits)));
const percent = (value, digits = 3) => isNumber(value) ? `${Number((100 * value).toPrecision(digits))}%` : '–';
const sum = values => values.reduce((total, value) => total + (value ?? 0), 0);
const some = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
const short = value => isNumber(value)
  ? new Intl.NumberFormat('en', {notation: 'compact', maximumSignificantDigits: 3}).format(value) : '–';
const label = lang => lang.name && lang.name !== lang.language ? `${lang.name} (${lang.language})` : lang.language;
const debounced = (wait, run) => { let timer; return () => { clearTimeout(timer); timer = setTimeout(run, wait); }; };

// ---------------------------------------------------------------- selection, as polysift makes it

const ONE = 10n ** 12n; // rates are decimal fractions of at most 12 places: ceilings have to be exact
const ceilOf = (rate, total) =>
  Number((BigInt(Math.round(rate * 1e12)) * BigInt(total) + ONE - 1n) / ONE);
const familyOf = kind => kind === 'removal' ? 'remove' : 'keep';

/** The thresholds of a selection of a language as the run made them, in their order. */
const ownRules = (lang, selection) => (lang.thresholds ?? []).filter(rule => rule.selection === selection);

/** The selections of a language, the smallest first. */
function selectionsOf(lang) {
  const own = Object.keys(lang.selected ?? {});
  const ordered = (data.selections ?? []).filter(name => own.includes(name));
  return ordered.concat(own.filter(name => !ordered.includes(name)));
}

/** The selection that the explorer starts from: the one chosen, or the smallest of a language that lacks it. */
function baseOf(lang) {
  const own = selectionsOf(lang);
  return own.includes(state.selection) ? state.selection : own[0] ?? null;
}

/** What the documents of a head weigh in all, as rates count: those scored, and those that a cascade dropped. */
const wholeWeight = scores => weight === 'documents' ? scores.n + (scores.dropped ?? 0) : scores.curve?.[weight]?.at(-1) ?? 0;

/** A score of the report as a number: JSON has no infinite ones, which are text. */
const real = score => score === 'inf' ? Infinity : score === '-inf' ? -Infinity : score;

/** A head's rate in the run: of a fixed threshold or a budget the rate that came of it; null: it makes no threshold. */
function ownRate(lang, control) {
  const rule = ownRules(lang, baseOf(lang)).findLast(rule => isOf(rule, control));
  if (!rule) return null;
  if (rule.kind === 'removal' || rule.kind === 'retention') return rule.rate;
  const of = lang.scores[rule.head] ? wholeWeight(lang.scores[rule.head]) : 0;
  return of ? Math.min(1, rule.kept.weight / of) : null;
}

const isOf = (rule, control) => rule.head === control.head && familyOf(rule.kind) === control.family;

/** What is asked of a control in a language: a rate, 'off', or undefined for the run's own. */
const asked = (lang, control) => state.own[`${lang.language}.${control.id}`] ?? state.all[control.id];

/** The thresholds of a language in the present state, in their order. */
function rulesOf(lang) {
  const rules = [...ownRules(lang, baseOf(lang))];
  if (!Object.keys(state.all).length && !Object.keys(state.own).length) return rules;
  for (const control of controls) {
    const value = asked(lang, control);
    if (value === undefined || !lang.scores?.[control.head]) continue;
    const at = rules.findLastIndex(rule => isOf(rule, control));
    const off = value === 'off' || (control.family === 'remove' && value === 0);
    const kind = control.family === 'remove' ? 'removal' : 'retention';
    if (off) at >= 0 && rules.splice(at, 1);
    else if (at < 0) rules.splice(placeFor(control, rules), 0, {head: control.head, kind, rate: value});
    else if (rules[at].kind !== kind || rules[at].rate !== value) rules[at] = {head: control.head, kind, rate: value};
  }
  return rules;
}

/** Where a threshold that the run does not have in a language goes: by the order of heads. */
function placeFor(control, rules) {
  const order = head => data.heads.indexOf(head);
  const at = rules.findIndex(rule => order(rule.head) > order(control.head) ||
    (rule.head === control.head && control.family === 'remove'));
  return at < 0 ? rules.length : at;
}

const signature = rules => rules.map(rule =>
  [rule.head, rule.kind, rule.rate, rule.at, rule.bound, rule.budget].join('|')).join(';');

/** The selection of the run that has exactly these thresholds. */
function sameAsRun(lang, rules) {
  const text = signature(rules);
  const own = selectionsOf(lang), base = baseOf(lang);
  return [base, ...own].find(name => own.includes(name) && signature(ownRules(lang, name)) === text) ?? null;
}

const exact = value => ({value: value ?? null, exact: true, error: 0});
const about = (value, error) => ({value: value ?? null, exact: false, error});
const each = make => Object.fromEntries(QUANTITIES.map(quantity => [quantity, make(quantity)]));
const unknown = how => ({...each(() => about(null, 0)), how: `unknown (${how})`});

/** Why the page cannot make thresholds in a language as polysift does; null: it can. */
const unmade = (lang, rules) => !lang.documents ? null : isPublished && rules.length ? 'the published mode draws a sample of its own'
  : rules.some(rule => rule.kind === 'removal' && lang.scores?.[rule.head]?.dropped)
    ? 'with a cascade, a removal counts audited documents several times' : null;

/** How many documents, bytes and tokens stay in a language, and how that is known. */
function amounts(lang, rules) {
  const usable = rules.filter(rule => lang.scores?.[rule.head] || familyOf(rule.kind) === 'keep');
  if (isNarrowed()) {
    const before = baseOf(lang) === null ? null : narrowed(lang, ownRules(lang, baseOf(lang))).documents.value;
    return {...narrowed(lang, usable), of: narrowed(lang, []).documents, before};
  }
  const same = sameAsRun(lang, rules);
  if (same) return {...each(q => exact(lang.selected[same][q])), how: 'exact (as the run)', same};
  if (usable.some(rule => !lang.scores?.[rule.head])) return {...each(() => exact(0)), how: 'exact (no such head)'};
  if (!usable.length) return {...each(q => exact(lang[q])), how: 'exact (no threshold)'};
  if (unmade(lang, usable)) return unknown(unmade(lang, usable));
  if (lang.sample?.is_all) return fromSample(lang, usable);
  return usable.length === 1 ? fromCurve(lang, usable[0]) : fromSample(lang, usable);
}

/** What the rule alone keeps, as a number of best documents: exact at the points of the curve, between them not. */
function position(lang, rule) {
  const {n, curve} = lang.scores[rule.head];
  if (!n) return {documents: 0, exact: true};
  if (rule.kind === 'threshold') {
    const scores = curve.score.map(real);
    const rises = scores.at(-1) > scores[1]; // a head that keeps low scores
    const bound = rule.bound ?? (rises ? 'below' : 'above');
    const passes = {above: s => s > rule.at, below: s => s < rule.at,
      'at-least': s => s >= rule.at, 'at-most': s => s <= rule.at}[bound];
    const at = scores.findLastIndex((score, i) => i > 0 && passes(score));
    return {documents: at < 0 ? 0 : curve.documents[at], exact: true};
  }
  const total = wholeWeight(lang.scores[rule.head]);
  const removed = rule.kind === 'removal';
  const needed = rule.kind === 'budget' ? Math.min(rule.budget, total) : ceilOf(rule.rate, total);
  const reach = removed ? total - needed : needed;
  if (weight === 'documents') return {documents: Math.min(reach, n), exact: true};
  // In bytes or tokens: the fewest documents that reach the weight, or, of a removal, the most that do not exceed it.
  const sums = curve[weight];
  const j = removed ? sums.findLastIndex(s => s <= reach) : sums.findIndex(s => s >= reach);
  const i = removed ? Math.min(j + 1, sums.length - 1) : Math.max(j - 1, 0);
  if (sums[j] === reach || Math.abs(curve.documents[j] - curve.documents[i]) <= 1)
    return {documents: curve.documents[j], exact: true};
  const share = (reach - sums[i]) / (sums[j] - sums[i]);
  return {documents: curve.documents[i] + share * (curve.documents[j] - curve.documents[i]), exact: false};
}

function fromCurve(lang, rule) {
  const {curve} = lang.scores[rule.head];
  const at = position(lang, rule);
  if (!curve?.documents?.length) return {...each(q => q === 'documents' ? exact(0) : exact(0)), how: 'exact (no scores)'};
  const j = Math.max(0, curve.documents.findIndex(documents => documents >= at.documents));
  const onPoint = curve.documents[j] === at.documents;
  const between = values => {
    if (!values) return null;
    if (onPoint) return values[j];
    const share = (at.documents - curve.documents[j - 1]) / (curve.documents[j] - curve.documents[j - 1]);
    return values[j - 1] + share * (values[j] - values[j - 1]);
  };
  const result = each(q => q === 'documents' ? (at.exact ? exact : about)(at.documents, 0)
    : (at.exact && onPoint ? exact : about)(between(curve[q]), 0));
  const how = at.exact && onPoint ? 'exact (a point of the curve)'
    : at.exact ? 'documents exact; bytes and tokens interpolated between exact points'
    : 'interpolated between exact points';
  return {...result, how};
}

/** The documents of the sample in a head's order, the best first; those without score are left out. */
function orderOf(lang, head) {
  lang.orders ??= new Map();
  if (!lang.orders.has(head)) {
    const order = [];
    lang.sample.ranks[head]?.forEach((rank, i) => { if (rank >= 0) order[rank] = i; });
    lang.orders.set(head, order.filter(i => i !== undefined));
  }
  return lang.orders.get(head);
}

/** Makes the thresholds in the sample. Returns who is alive, and for each the first rank that does not pass. */
function simulate(lang, rules) {
  const key = signature(rules);
  lang.simulations ??= new Map();
  if (lang.simulations.has(key)) return lang.simulations.get(key);
  const {sample} = lang, size = sample.bytes.length;
  const weights = weight === 'documents' ? null : sample[weight];
  const weigh = documents => weights ? sum(documents.map(i => weights[i])) : documents.length;
  const alive = new Uint8Array(size).fill(1);
  const cuts = rules.map(rule => {
    const ranks = sample.ranks[rule.head];
    const order = orderOf(lang, rule.head);
    const left = order.filter(i => alive[i]);
    let kept;
    if (rule.kind === 'threshold') {
      const share = position(lang, rule).documents / Math.max(1, lang.scores[rule.head].n);
      const bound = Math.round(share * order.length);
      kept = left.filter(i => ranks[i] < bound).length;
    } else if (rule.kind === 'removal') {
      kept = left.length - reached(left.toReversed(), ceilOf(rule.rate, weigh(left)), weights);
    } else {
      const {n, dropped = 0} = lang.scores[rule.head];
      const total = Math.round(weigh(order) * (1 + dropped / Math.max(1, n)));
      const needed = rule.kind === 'retention' ? ceilOf(rule.rate, total)
        : Math.round(rule.budget * total / Math.max(1, wholeWeight(lang.scores[rule.head])));
      kept = reached(left, needed, weights);
    }
    alive.fill(0);
    for (const i of left.slice(0, kept)) alive[i] = 1;
    // Half way between the last that passes and the first that does not.
    return kept === left.length ? order.length : kept === 0 ? 0 : (ranks[left[kept - 1]] + ranks[left[kept]] + 1) / 2;
  });
  if (lang.simulations.size > 8) lang.simulations.clear();
  const result = {alive, cuts};
  lang.simulations.set(key, result);
  return result;
}

/** How many of the first documents reach a weight; all, if they do not. */
function reached(documents, needed, weights) {
  if (!weights) return Math.min(needed, documents.length);
  let [total, i] = [0, 0];
  while (i < documents.length && total < needed) total += weights[documents[i++]];
  return i;
}

/** The documents that several thresholds keep, where that follows from rates alone (all documents have all scores). */
function countedDocuments(lang, rules) {
  if (weight !== 'documents') return null;
  let left = lang.documents;
  for (const [i, rule] of rules.entries()) {
    const {n} = lang.scores[rule.head];
    if (i > 0 && (n !== lang.documents || rule.kind === 'threshold')) return null;
    if (i === 0) left = position(lang, rule).documents;
    else if (rule.kind === 'removal') left -= ceilOf(rule.rate, left);
    else left = Math.min(left, rule.kind === 'budget' ? rule.budget : ceilOf(rule.rate, n));
  }
  return left;
}

/** Whether documents of some length or domain alone are looked at. */
const isNarrowed = () => Boolean(state.least || state.most || state.domain.trim());

/** Whether a document of so many bytes is looked at, and one of a domain (undefined: not known). */
const hasLength = bytes => bytes >= Number(state.least || 0) && bytes <= Number(state.most || Infinity);
const hasDomain = domain => String(domain ?? '').toLowerCase().includes(state.domain.trim().toLowerCase());

/** The same of the documents that are looked at; thresholds are made by all. */
function narrowed(lang, rules) {
  const {sample} = lang;
  if (rules.some(rule => !lang.scores?.[rule.head]))
    return rules.some(rule => !lang.scores?.[rule.head] && familyOf(rule.kind) === 'keep')
      ? {...each(() => exact(0)), how: 'exact (no such head)'} : narrowed(lang, rules.filter(rule => lang.scores?.[rule.head]));
  if (unmade(lang, rules)) return unknown(unmade(lang, rules));
  if (lang.documents && state.domain.trim() && !sample?.domains) return unknown('domains are not known');
  const names = sample?.domain_names ?? [];
  const seen = state.domain.trim() ? names.map(hasDomain) : null;
  return fromSample(lang, rules, i => hasLength(sample.bytes[i]) && (!seen || Boolean(seen[sample.domains[i]])));
}

/** What thresholds keep of the sample, of the documents that `isSeen` takes. */
function fromSample(lang, rules, isSeen) {
  const {sample} = lang, size = sample?.bytes?.length ?? 0, of = sample?.of ?? lang.documents;
  if (!of) return {...each(q => exact(lang[q])), how: 'exact (no documents)'};
  if (!size) return unknown('there is no sample');
  const all = simulate(lang, rules).alive, alive = isSeen ? all.map((is, i) => is && isSeen(i) ? 1 : 0) : all;
  const kept = sum([...alive]);
  const values = q => q === 'documents' ? null : sample[q];
  if (sample.is_all) {
    const total = q => q === 'documents' ? kept : values(q) ? sum(values(q).filter((_, i) => alive[i])) : null;
    return {...each(q => exact(total(q))), how: 'exact (the page holds all documents)'};
  }
  // The sample is drawn without replacement: at its full size the error is none.
  const finite = Math.sqrt(Math.max(0, 1 - size / of)), share = kept / size;
  const counted = isSeen ? null : countedDocuments(lang, rules);
  if (counted === 0) return {...each(() => exact(0)), how: 'exact (none is left)'};
  const result = each(q => {
    if (q === 'documents') return counted !== null ? exact(counted)
      : about(of * share, of * Math.sqrt(share * (1 - share) / Math.max(1, size - 1)) * finite);
    if (!values(q) || lang[q] == null) return about(null, 0);
    // The share of the sample's bytes that stay, of all bytes.
    const all = sum(values(q)), ratio = all ? sum(values(q).map((v, i) => v * alive[i])) / all : 0;
    const squares = sum(values(q).map((v, i) => ((alive[i] - ratio) * v) ** 2));
    return about(lang[q] * ratio, of * Math.sqrt(squares / Math.max(1, size - 1) / size) * finite);
  });
  const estimate = `estimated from a sample of ${count(size)} of ${count(of)} documents`;
  return {...result, how: counted !== null ? `documents exact; bytes and tokens ${estimate}` : estimate};
}

/** For each threshold the first rank in the whole population that does not pass. */
function populationCuts(lang, rules) {
  const {sample} = lang;
  const {cuts} = simulate(lang, rules);
  if (sample.is_all) return cuts;
  const base = baseOf(lang), own = ownRules(lang, base).filter(rule => lang.scores[rule.head]);
  const ownCuts = own.length && simulate(lang, own).cuts;
  return rules.map((rule, i) => {
    if (i === 0) return position(lang, rule).documents;
    const {n} = lang.scores[rule.head];
    const scale = n / Math.max(1, orderOf(lang, rule.head).length);
    // The sample says how far a cut moves; where the run's own cut lies is known exactly.
    const at = own.findIndex(other => other.head === rule.head && familyOf(other.kind) === familyOf(rule.kind));
    const known = at < 0 ? null : runCut(lang, own[at], base);
    return known === null ? cuts[i] * scale : known + (cuts[i] - ownCuts[at]) * scale;
  });
}

/** Where a cut of the run lies: from the documents beside it, else from the curve. */
function runCut(lang, rule, selection) {
  const beside = side => (lang.examples ?? []).filter(example =>
    example.shown_for?.[rule.head]?.includes(`${side} ${selection}`)).map(example => example.ranks[rule.head]);
  const above = beside('above_cut');
  if (above.length && familyOf(rule.kind) === 'keep') return Math.max(...above) + 1;
  if (rule.score == null) return null;
  const {curve} = lang.scores[rule.head];
  const scores = curve.score.map(real), cut = real(rule.score), rises = scores.at(-1) > scores[1];
  const at = scores.findLastIndex((s, i) => i > 0 && (rises ? s <= cut : s >= cut));
  return at < 0 ? null : curve.documents[at];
}

/** Whether the filter of the page takes an example. */
const isSeen = example => hasLength(example.bytes) && hasDomain(example.domain);

/** Whether the run's selection has an example. */
function isSelected(lang, example, selection) {
  const own = selectionsOf(lang), at = own.indexOf(example.verdict);
  return at >= 0 && at <= own.indexOf(selection);
}

/** A function that says of an example of the language why it is out in the present state; null: it is in. */
function judge(lang) {
  const rules = rulesOf(lang), same = sameAsRun(lang, rules);
  if (same) return example => isSelected(lang, example, same) ? null : example.verdict;
  const usable = rules.filter(rule => lang.scores?.[rule.head]);
  if (rules.some(rule => !usable.includes(rule) && familyOf(rule.kind) === 'keep')) return () => 'no such head';
  if (usable.length && !lang.sample?.bytes?.length && usable.length > 1) return () => 'unknown: there is no sample';
  const cuts = usable.length === 0 ? [] : usable.length === 1 && !lang.sample?.is_all
    ? [position(lang, usable[0]).documents] : populationCuts(lang, usable);
  return example => {
    if (example.filter) return `removed: ${example.filter}`;
    for (const [i, rule] of usable.entries()) {
      const rank = example.ranks?.[rule.head];
      if (rank == null || rank < 0) return `no score of ${rule.head}`;
      if (rank >= cuts[i]) return `${describe(rule)}: rank ${count(rank + 1)} of ${count(lang.scores[rule.head].n)}, ` +
        `the cut is ${i === 0 || lang.sample?.is_all ? 'at' : 'near'} ${count(cuts[i])}`;
    }
    return null;
  };
}

function describe(rule) {
  if (rule.kind === 'removal') return `${rule.head}: worst ${percent(rule.rate, 6)} removed`;
  if (rule.kind === 'retention') return `${rule.head}: best ${percent(rule.rate, 6)} kept`;
  if (rule.kind === 'budget') return `${rule.head}: best until ${count(rule.budget)} ${weight}`;
  return `${rule.head}: ${(rule.bound ?? '').replace('-', ' ')} ${rule.at}`;
}

// ---------------------------------------------------------------- state, kept in the address

/** A control for each head and direction in which it makes a threshold anywhere; a head without any may keep. None in the published mode. */
const controls = isPublished ? [] : (data.heads ?? []).flatMap(head => {
  const families = new Set();
  for (const lang of languages)
    for (const rule of lang.thresholds ?? []) if (rule.head === head) families.add(familyOf(rule.kind));
  if (!families.size) families.add('keep');
  return [...families].map(family => ({head, family, id: families.size > 1 && family === 'remove' ? `${head}:removal` : head}));
});
const state = {};

function readHash() {
  const fields = new URLSearchParams(location.hash.slice(1).replaceAll('+', '%2B'));
  Object.assign(state, {selection: data.selections?.[0] ?? null, all: {}, own: {}, lang: '', head: '', scale: 'logit', domain: '', least: '', most: ''});
  for (const [key, text] of fields) {
    const value = text === 'off' ? 'off' : Number(text);
    const isRate = value === 'off' || (text.trim() !== '' && value >= 0 && value <= 1);
    const [, code, id] = /^([^.]*)\.(.*)$/s.exec(key) ?? [];
    if (controls.some(control => control.id === key)) { if (isRate) state.all[key] = value; }
    else if (byCode.has(code) && controls.some(control => control.id === id)) { if (isRate) state.own[key] = value; }
    else if (key === 'selection') { if (data.selections?.includes(text)) state.selection = text; }
    else if (key === 'head') { if (data.heads.includes(text)) state.head = text; }
    else if (key === 'scale') { if (text === 'probability') state.scale = text; }
    else if (['lang', 'domain', 'least', 'most'].includes(key)) state[key] = text;
  }
}

function writeHash() {
  const fields = new URLSearchParams();
  for (const [key, value] of [...Object.entries(state.all), ...Object.entries(state.own)]) fields.set(key, value);
  if (state.selection !== (data.selections?.[0] ?? null)) fields.set('selection', state.selection);
  for (const key of ['lang', 'head', 'domain', 'least', 'most']) if (state[key]) fields.set(key, state[key]);
  if (state.scale !== 'logit') fields.set('scale', state.scale);
  const text = fields.toString().replaceAll('+', '%20');
  if (text !== location.hash.slice(1)) history.replaceState(null, '', text ? `#${text}` : location.href.split('#')[0]);
}
const saveHash = debounced(150, writeHash); // browsers limit how often the address may change

/** The languages that the filter leaves: one by its code, or those whose code or name has the text. */
function shown() {
  const text = state.lang.trim();
  if (!text) return languages;
  if (byCode.has(text)) return [byCode.get(text)];
  const lower = text.toLowerCase();
  return languages.filter(lang => label(lang).toLowerCase().includes(lower));
}

// ---------------------------------------------------------------- tables

/** A table of `columns` ({name, number, digits}) and `rows` (arrays of text, number, element or {value, text}). */
function table(caption, columns, rows, limit = 100) {
  const body = h('tbody'), paper = h('p', {class: 'paper'});
  let [sorted, by, down, most] = [rows, -1, true, limit];
  const valueOf = cell => cell?.value ?? (cell instanceof Node ? cell.textContent : cell);
  const cellOf = (cell, i) => {
    const column = columns[i];
    const content = cell instanceof Node ? cell : cell?.text ?? (typeof cell === 'number' ? number(cell, column.digits) : cell ?? '–');
    const attributes = {class: column.number ? 'number' : column.words ? 'words' : null};
    const inner = content instanceof Node ? content : column.number ? content : h('bdi', {}, content);
    return i === 0 && !column.number ? h('th', {...attributes, scope: 'row'}, inner) : h('td', attributes, inner);
  };
  const fill = () => {
    body.replaceChildren(...sorted.slice(0, most).map(row => h('tr', {}, row.map(cellOf))));
    more.hidden = rows.length <= most;
    paper.textContent = more.hidden ? '' : `${count(rows.length - most)} more rows are in the page on the screen.`;
  };
  const sort = (i, th) => {
    down = by === i ? !down : Boolean(columns[i].number);
    by = i;
    const compare = (a, b) => a == null ? -1 : b == null ? 1 : typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b));
    sorted = rows.toSorted((a, b) => (down ? -1 : 1) * compare(valueOf(a[i]), valueOf(b[i])));
    for (const other of th.parentNode.children) other.removeAttribute('aria-sort');
    th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    fill();
  };
  const heads = columns.map((column, i) => {
    const th = h('th', {scope: 'col', class: column.number ? 'number' : null});
    th.append(rows.length > 1 ? h('button', {type: 'button', click: () => sort(i, th)}, column.name) : column.name);
    return th;
  });
  const more = h('button', {type: 'button', class: 'more', click: () => { most = Infinity; fill(); }}, `Show all ${count(rows.length)} rows`);
  fill();
  return h('div', {}, scroller(caption, h('table', {}, h('caption', {}, caption), h('thead', {}, h('tr', {}, heads)), body)), more, paper);
}

const scroller = (name, content) => h('div', {class: 'scroll', role: 'group', 'aria-label': name, tabindex: '0'}, content);

/** A disclosure whose content is made when it is opened first. */
function disclosure(summary, make, attributes) {
  const details = h('details', attributes, h('summary', {}, summary));
  const fill = () => { if (!details.filled) { details.filled = true; details.append(...[make()].flat()); } };
  details.addEventListener('toggle', () => details.open && fill());
  details.fill = fill;
  return details;
}

// ---------------------------------------------------------------- figures

const observer = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) reveal(entry.target);
}, {rootMargin: '400px'});

function reveal(slot) {
  observer.unobserve(slot);
  const make = slot.make;
  slot.make = null;
  make?.(slot);
}

/** An element that is filled when it comes near the window, or when the page is printed. */
function lazy(make, attributes) {
  const slot = h('div', attributes);
  slot.make = make;
  slot.classList.add('lazy');
  observer.observe(slot);
  return slot;
}

/** A figure: `plot(width)` gives its options; `numbers` is the table of what it shows. */
function figure(title, caption, plot, numbers, kind = 'numbers') {
  const draw = slot => {
    const width = Math.max(240, Math.min(960, slot.clientWidth || 640));
    const svg = Plot.plot({width, ...plot(width), style: {background: 'transparent', color: 'currentColor', fontFamily: 'inherit', fontSize: '12px', overflow: 'visible'}});
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', `${title}. ${caption}`);
    for (const part of svg.querySelectorAll('[aria-label]')) part.removeAttribute('aria-label'); // an image has one name
    slot.classList.remove('slot');
    slot.replaceChildren(svg);
  };
  return h('figure', {}, h('figcaption', {}, h('span', {class: 'figure-title'}, title), caption),
    lazy(draw, {class: 'slot'}), disclosure('Numbers', numbers, {class: kind}));
}

/** A selection has one colour everywhere; what is of no selection is grey. */
const colourOf = name => data.selections?.includes(name) ? `var(--c${data.selections.indexOf(name) % 6})` : 'var(--soft)';
const scaleOf = names => ({domain: names, range: names.map(colourOf)});
const swatch = name => h('i', {class: 'swatch', style: `background:${colourOf(name)}`});
const legend = names => h('ul', {class: 'legend'}, names.map(name => h('li', {}, swatch(name), h('bdi', {}, name))));

/** Density of a head's scores in a language, with the cuts of the run. */
function density(lang, head) {
  const scores = lang.scores[head], logit = state.scale === 'logit' && Boolean(scores.logits?.counts?.length);
  const bins = logit ? scores.logits : scores.bins, isRaw = Math.fround(scores.min) === scores.logits?.low && Math.fround(scores.max) === scores.logits.high;
  const unit = logit && !isRaw ? 'logit' : 'score';
  const cuts = (lang.thresholds ?? []).filter(rule => rule.head === head)
    .map(rule => ({at: logit ? rule.logit : rule.score, selection: rule.selection, kind: rule.kind, rate: rule.rate}))
    .filter(cut => isNumber(cut.at));
  const distinct = [...d3.group(cuts, cut => cut.at).values()].map(equal => ({...equal[0], colour: equal.length > 1 ? 'currentColor' : colourOf(equal[0].selection)}));
  const of = [scores.dropped && `${count(scores.dropped)} dropped by the cascade`, scores.unscored && `${count(scores.unscored)} without score`, scores.nan && `${count(scores.nan)} not a number`].filter(Boolean);
  const title = `${label(lang)}, ${head}`;
  if (!scores.n || !bins?.counts?.length)
    return h('figure', {}, h('figcaption', {}, h('span', {class: 'figure-title'}, title), ['No document has a score', ...of].join('; '), '.'));
  const caption = `${count(scores.n)} documents; scores: mean ${number(scores.mean)}, median ${number(scores.quantiles?.['50'])}, standard deviation ${number(scores.std)}` +
    `${distinct.length ? `; cut at ${unit === 'logit' ? 'logit ' : ''}${distinct.map(cut => number(cut.at, 4)).join(' and ')}` : '; no cut'}${of.map(text => `; ${text}`).join('')}.`;
  const total = sum(bins.counts), width = (bins.high - bins.low) / bins.counts.length || 1;
  const steps = bins.counts.map((n, i) => ({x: bins.low + i * width, y: n / total / width, n}));
  steps.push({x: steps.length * width + bins.low, y: steps.at(-1).y, n: 0});
  return figure(title, caption, () => ({
    height: 150, marginLeft: 40, marginBottom: 32, marginTop: 10,
    x: {label: unit, ticks: 5}, y: {label: null, ticks: 3, tickFormat: short, nice: true},
    marks: [
      Plot.areaY(steps, {x: 'x', y: 'y', curve: 'step-after', fill: 'var(--soft)', fillOpacity: .25}),
      Plot.lineY(steps, {x: 'x', y: 'y', curve: 'step-after', stroke: 'var(--soft)', strokeWidth: 1}),
      Plot.ruleY([0], {stroke: 'currentColor'}),
      Plot.ruleX(distinct, {x: 'at', stroke: 'colour', strokeWidth: 1.5, strokeDasharray: '4 3'}),
    ],
  }), () => table(`${title}: documents by ${unit}`, [{name: 'from', number: true, digits: 4}, {name: 'to', number: true, digits: 4}, {name: 'documents', number: true}],
    steps.slice(0, -1).map((step, i) => [step.x, steps[i + 1].x, step.n]), 50), 'bins');
}

// ---------------------------------------------------------------- header and navigation

/** What the run is, when it chose what, and small print of three lines. */
function drawFacts() {
  const day = isNumber(data.time) ? `, ${new Intl.DateTimeFormat('en-GB', {dateStyle: 'long', timeZone: 'UTC'}).format(1000 * data.time)}` : '';
  document.title = `${data.title}${day} – polysift report`;
  const total = q => sum(languages.map(lang => lang[q]));
  const ends = [...new Set([0, -1].map(end => sum(languages.map(lang => lang.selected?.[selectionsOf(lang).at(end)]?.documents))))];
  const kept = (data.selections ?? []).map(name => {
    const having = languages.filter(lang => lang.selected?.[name]);
    const part = q => sum(having.map(lang => lang.selected[name][q]));
    return [' ', swatch(name), h('bdi', {}, name), having.length < languages.length ? ` (${some(having.length, 'language')})` : '',
      `: ${some(part('documents'), 'document')}, ${short(part('bytes'))} bytes${lacksTokens(having) ? '' : `, ${short(part('tokens'))} tokens`}.`];
  });
  document.getElementById('facts').append(
    h('h1', {}, h('bdi', {}, data.title ?? 'run'), `: ${data.selections?.length ? `${ends.map(count).join(' to ')} of ` : ''}${some(total('documents'), 'document')} ${data.selections?.length ? 'kept ' : ''}in ${some(languages.length, 'language')}${day}`),
    h('p', {class: 'facts'}, `All: ${short(total('bytes'))} bytes${noTokens ? '' : `, ${short(total('tokens'))} tokens`}.`, kept),
    h('p', {class: 'facts'}, 'Heads in order: ', h('bdi', {}, (data.heads ?? []).join(', ') || 'none'), `; rates count ${weight}; encoder `, h('bdi', {}, data.encoder ?? '–'), `; polysift ${data.version ?? '–'}.`),
    h('p', {class: 'facts'}, 'Numbers are exact counts, but for those in italics or said to be of a sample. Colours are of selections; grey is of all documents.'));
}

// ---------------------------------------------------------------- overview

/** What may stand out: a rule, and what it finds in a language for a selection: [how much, in words]. */
const RULES = [
  ['Kept texts are at least 1.5 times shorter or longer', (lang, name) => {
    const medians = measure => [name, 'all'].map(group => lang.length?.[group]?.[measure]?.median);
    const measure = ['words', 'characters', 'tokens', 'bytes'].find(measure => medians(measure).every(Boolean)), [own, all] = medians(measure);
    const times = measure ? Math.max(own / all, all / own) : 0;
    return times < 1.5 ? [] : [[times, `kept texts are ${number(times, 2)} times ${own < all ? 'shorter' : 'longer'} than the corpus (median: ${number(own, 5)} against ${number(all, 5)} ${measure})`]];
  }],
  ['Two domains make at least 25% of 20 or more kept documents', (lang, name) => {
    const rows = lang.domains ?? [], of = d => d.kept?.[name] ?? 0, kept = sum(rows.map(of));
    const top = rows.filter(d => d.domain !== '(others)').toSorted((a, b) => of(b) - of(a)).slice(0, 2), share = sum(top.map(of)) / kept;
    return kept < 20 || rows.length < 3 || share < .25 ? [] : [[share, `two domains make ${percent(share)} of what is kept (${top.map(d => d.domain).join(', ')}) and ${percent(sum(top.map(d => d.documents)) / sum(rows.map(d => d.documents)))} of the corpus`]];
  }],
  ['A head was tested on fewer than 50 texts', lang => visibleHeads(lang).flatMap(head => {
    const {test} = lang.scores[head], [low, high] = test?.roc_auc_interval ?? [];
    return !test || test.num_samples >= 50 ? [] : [[-test.num_samples, `the head ${head} was tested on ${some(test.num_samples, 'text')}${low == null ? '' : ` (AUC ${number(test.roc_auc)}; 95% interval: ${number(low)} to ${number(high)})`}`]];
  })],
  ['A cut splits documents of equal score, at least 5% of its smaller side', (lang, name) => ownRules(lang, name).flatMap(rule => {
    const {kept = 0, dropped = 0} = rule.tied ?? {}, smaller = Math.min(rule.kept.documents, rule.candidates.documents - rule.kept.documents);
    return !dropped || kept + dropped < .05 * smaller ? [] : [[(kept + dropped) / smaller, `“${describe(rule)}” keeps ${count(kept)} of ${count(kept + dropped)} documents of equal score, chosen by the hash of their ids`]];
  })],
  ['A head has no score for at least 5% of the documents', lang => visibleHeads(lang).flatMap(head => {
    const {n, nan = 0, unscored = 0} = lang.scores[head], share = (nan + unscored) / (n + nan + unscored);
    return share >= .05 ? [[share, `the head ${head} has no score for ${percent(share)} of the documents (${count(nan + unscored)})`]] : [];
  })],
  ['A language has fewer than 100 documents', (lang, name) => lang.documents < 100
    ? [[-lang.documents, `there are ${some(lang.documents, 'document')}${lang.selected?.[name] ? `, of which ${name} keeps ${count(lang.selected[name].documents)}` : ''}`]] : []],
];

function drawOverview(body) {
  const visible = shown(), names = (data.selections ?? []).filter(name => visible.some(lang => lang.selected?.[name]));
  const heads = (data.heads ?? []).filter(head => visible.some(lang => lang.scores?.[head]?.test)), testOf = (lang, head) => lang.scores?.[head]?.test;
  const measureOf = head => visible.some(lang => testOf(lang, head)?.spearman != null) ? 'spearman' : 'roc_auc';
  const test = (found, measure) => found ? {value: found[measure], text: `${found[measure]?.toFixed(3) ?? '–'} (${count(found.num_samples)})`} : null;
  const kept = (part, of) => part ? {value: part.documents, text: `${count(part.documents)} (${percent(of ? part.documents / of : null)})`} : null;
  body.append(table('Documents, and how heads did on held-out texts (n)', [{name: 'language'}, ...['documents', 'bytes', ...names.map(name => `kept by ${name}`), ...heads.map(head => `${measureOf(head) === 'spearman' ? 'Spearman' : 'AUC'} of ${head} (n)`)].map(name => ({name, number: true}))],
    visible.map(lang => [label(lang), lang.documents, lang.bytes, ...names.map(name => kept(lang.selected?.[name], lang.documents)), ...heads.map(head => test(testOf(lang, head), measureOf(head)))])));
  const found = RULES.map(([rule, look]) => [rule, visible.flatMap(lang => look(lang, baseOf(lang)).map(([size, text]) => ({lang, size, text}))).sort((a, b) => b.size - a.size)]);
  const quiet = found.filter(([, list]) => !list.length).map(([rule]) => rule.toLowerCase());
  body.append(h('h3', {}, `Findings${state.selection ? ` for ${state.selection}` : ''}`), ...(data.notes ?? []).map(note => h('p', {}, h('bdi', {}, note))),
    ...found.filter(([, list]) => list.length).flatMap(([rule, list]) => [h('h4', {}, rule), paged(list, 5, ({lang, text}) => h('p', {class: 'finding'}, h('b', {}, h('bdi', {}, label(lang))), ': ', h('bdi', {}, text), '.'))]),
    quiet.length ? h('p', {class: 'note'}, `Nowhere so: ${quiet.join('; ')}.`) : '');
}

const inputs = {};
function drawNav() {
  const go = event => {
    event.preventDefault(); // the address keeps the state
    const section = document.querySelector(event.currentTarget.getAttribute('href'));
    section.scrollIntoView();
    section.focus({preventScroll: true});
  };
  const choose = (key, element) => {
    inputs[key] = element;
    const apply = debounced(element.tagName === 'INPUT' ? 120 : 0, () => { state[key] = element.value; filterChanged(); });
    element.addEventListener('input', apply);
    return element;
  };
  const options = h('datalist', {id: 'codes'}, languages.map(lang => h('option', {value: lang.language}, lang.name ?? '')));
  document.getElementById('nav').append(h('div', {},
    h('ul', {}, sections.map(section => h('li', {}, h('a', {href: `#${section.id}`, click: go}, section.title)))),
    h('div', {class: 'filters', role: 'search', 'aria-label': 'Filter the page'},
      h('label', {}, 'Language', choose('lang', h('input', {type: 'search', list: 'codes', placeholder: 'code or name', autocomplete: 'off', name: 'lang'}))), options,
      h('label', {}, 'Head', choose('head', h('select', {name: 'head'}, h('option', {value: ''}, 'all'), (data.heads ?? []).map(head => h('option', {value: head}, head))))),
      h('label', {}, 'Domain', choose('domain', h('input', {type: 'search', name: 'domain', placeholder: 'part of a domain', autocomplete: 'off'}))),
      h('label', {}, 'Bytes from', choose('least', h('input', {type: 'number', name: 'least', min: 0}))),
      h('label', {}, 'to', choose('most', h('input', {type: 'number', name: 'most', min: 0}))))));
  document.querySelector('.skip').addEventListener('click', event => go(event));
}

// ---------------------------------------------------------------- explorer

const cells = new Map(); // by language: the row's elements
const widgets = [];      // controls to bring in step with the state

/** Slider, number and switch for a rate, of all languages or of one. */
function rateControl(control, lang) {
  const key = lang ? `${lang.language}.${control.id}` : control.id, values = lang ? state.own : state.all;
  const store = lang ? () => state.own : () => state.all;
  const name = `${control.family === 'remove' ? 'Remove the worst by' : 'Keep the best by'} ${control.head}${lang ? `, ${lang.language}` : ''}`;
  const set = value => {
    if (value === undefined) delete store()[key]; else store()[key] = value;
    stateChanged();
  };
  const fromPercent = text => Number((Math.min(100, Math.max(0, Number(text))) / 100).toFixed(12));
  const slider = h('input', {type: 'range', min: 0, max: 100, step: .1, 'aria-label': `${name}, percent (slider)`, 'data-control': key,
    input: () => set(fromPercent(slider.value))});
  const exactly = h('input', {type: 'number', min: 0, max: 100, step: .1, 'aria-label': `${name}, percent`, 'data-control': key,
    input: () => exactly.value !== '' && set(fromPercent(exactly.value))});
  const applies = h('input', {type: 'checkbox', 'data-control': key, 'aria-label': `use: ${name}`, change: () => set(applies.checked ? fromPercent(exactly.value || 100) : 'off')});
  const reset = h('button', {type: 'button', click: () => set(undefined)}, lang ? 'as all' : 'as the run');
  const note = h('div', {class: 'note'});
  const sync = () => {
    const own = lang ? asked(lang, control) ?? ownRate(lang, control) : state.all[control.id] ?? usualRate(control);
    const off = own === 'off' || own == null;
    applies.checked = !off;
    slider.disabled = exactly.disabled = off;
    if (!off) {
      slider.value = 100 * own;
      const text = String(Number((100 * own).toFixed(6)));
      if (document.activeElement !== exactly || fromPercent(exactly.value) !== own) exactly.value = text;
      slider.setAttribute('aria-valuetext', `${text}%`);
    } else exactly.value = '';
    reset.disabled = store()[key] === undefined;
    note.textContent = noteOf(control, lang);
  };
  widgets.push({sync, element: slider});
  sync();
  return h('fieldset', {}, h('legend', {}, name), h('div', {class: 'control-row'},
    h('label', {}, applies, 'use'), slider, h('label', {}, exactly, '%'), reset), note);
}

/** The rate that most languages have in the run. */
function usualRate(control) {
  const times = new Map();
  for (const lang of languages) {
    const rate = ownRate(lang, control);
    if (rate != null) times.set(rate, (times.get(rate) ?? 0) + 1);
  }
  return [...times].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
}

function noteOf(control, lang) {
  const rules = lang ? ownRules(lang, baseOf(lang)).filter(rule => isOf(rule, control))
    : languages.flatMap(lang => ownRules(lang, baseOf(lang)).filter(rule => isOf(rule, control)));
  if (lang) return `The run: ${rules.map(describe).join('; ') || 'no threshold'}.`;
  const kinds = [...d3.rollup(rules, group => group.length, describe)].sort((a, b) => b[1] - a[1]);
  const text = kinds.slice(0, 3).map(([what, n]) => kinds.length > 1 ? `${what} (${some(n, 'language')})` : what).join('; ');
  const overrides = Object.keys(state.own).filter(key => key.endsWith(`.${control.id}`)).length;
  return `The run: ${text || 'no threshold'}${kinds.length > 3 ? `; ${kinds.length - 3} others` : ''}.` +
    (overrides ? ` Rates of their own on this page: ${some(overrides, 'language')}.` : '');
}

function drawExplorer(body) {
  const columns = ['documents', 'share', 'bytes', 'tokens'];
  const rows = languages.map(lang => {
    const cell = quantity => h('td', {class: 'number', 'data-language': lang.language, 'data-quantity': quantity});
    const row = {all: h('td', {class: 'number', 'data-language': lang.language, 'data-quantity': 'of'}), change: h('td', {class: 'number', 'data-language': lang.language, 'data-quantity': 'change'}), how: h('td', {class: 'words', 'data-language': lang.language, 'data-quantity': 'how'})};
    for (const column of columns) row[column] = cell(column);
    row.tr = h('tr', {}, h('th', {scope: 'row'}, h('bdi', {}, label(lang))), row.all, columns.map(c => row[c]), row.change, row.how);
    cells.set(lang.language, row);
    return row.tr;
  });
  const foot = {all: h('td', {class: 'number'}), change: h('td', {class: 'number'}), how: h('td', {class: 'words'}), name: h('th', {scope: 'row'})};
  for (const column of columns) foot[column] = h('td', {class: 'number', 'data-language': 'total', 'data-quantity': column});
  foot.tr = h('tr', {}, foot.name, foot.all, columns.map(c => foot[c]), foot.change, foot.how);
  cells.set('total', foot);
  const starts = (data.selections ?? []).length > 1 && h('label', {}, 'Start from the run’s selection ',
    inputs.selection = h('select', {change: event => { state.selection = event.target.value; filterChanged(); }},
      data.selections.map(name => h('option', {value: name}, name))));
  const resetAll = h('button', {type: 'button', click: () => { state.all = {}; state.own = {}; stateChanged(); }}, 'All as the run');
  const head = text => h('th', {scope: 'col', class: 'number'}, text);
  body.append(
    h('p', {}, `Move a rate and see what stays. Removals take the worst of the documents that are left; a retention keeps the best, as many as its rate of all documents that have a score or that a cascade dropped (counted in ${weight}). Thresholds are made in the order shown.`),
    h('p', {class: 'note'}, 'Exact are the run’s own rates, a single threshold at the points of its curve, numbers of documents under several rates, and languages whose documents are all in the page. All else is estimated from a uniform sample: in italics, with the standard error after ±. Filters that act after selection are not counted.'),
    h('div', {class: 'filters'}, starts, controls.length > 0 && resetAll),
    controls.length ? '' : h('p', {}, isPublished ? 'The run chose in the published mode, whose sample is not in the page, so there is no rate to move.' : 'The run has no heads, so there is no rate to move.'),
    h('div', {class: 'controls'}, controls.map(control => rateControl(control))),
    inputs.totals = h('p', {class: 'totals', role: 'status'}),
    scroller('What stays, by language', h('table', {id: 'explorer-table'}, h('caption', {}, 'What stays, by language'),
      h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'language'), head('of'), columns.map(head), head('change'), h('th', {scope: 'col'}, 'how it is known'))),
      h('tbody', {}, rows), h('tfoot', {}, foot.tr))),
    inputs.allRows = h('button', {type: 'button', class: 'more', hidden: true, click: () => { mostRows = Infinity; updateExplorer(); }}),
    h('h3', {}, 'What enters and leaves'),
    inputs.moves = h('div', {id: 'moves'}));
}

function setText(element, text) {
  if (element.shownText === text) return; // to ask the document is slow for thousands of rows
  element.textContent = element.shownText = text;
}

function fillQuantity(cell, amount) {
  const text = count(amount.value === null ? null : Math.round(amount.value));
  const error = amount.exact || !amount.error ? '' : ` ± ${count(Math.ceil(amount.error))}`;
  cell.dataset.exact = amount.exact;
  if (amount.value === null) delete cell.dataset.value; else cell.dataset.value = amount.value;
  if (error === '') return setText(cell, text);
  if (cell.shownText === text + error) return;
  cell.shownText = text + error;
  cell.replaceChildren(text, h('span', {class: 'error'}, error));
}

const shareOf = ({value}, of) => of && value !== null ? value / of : null;

function fillRow(row, result, of, change) {
  for (const quantity of QUANTITIES) fillQuantity(row[quantity], result[quantity]);
  const share = shareOf(result.documents, of);
  row.share.dataset.exact = result.documents.exact;
  setText(row.share, percent(share, 4));
  setText(row.change, !isNumber(change) ? '–' : change > 0 ? `+${count(change)}` : count(change).replace('-', '−'));
  row.change.className = `number ${change > 0 ? 'up' : change < 0 ? 'down' : ''}`;
  setText(row.how, result.how);
}

let mostRows = 100; // those after them are in the page, but not laid out, which is slow for thousands

function updateExplorer() {
  const visible = new Set(shown());
  let rowsLeft = mostRows;
  const total = each(q => ({value: q === 'tokens' && noTokens ? NaN : 0, exact: true, error: 0}));
  let [of, change, exactRows, ofExact] = [0, 0, 0, true];
  for (const lang of languages) {
    const row = cells.get(lang.language), see = visible.has(lang);
    const show = see && rowsLeft-- > 0;
    if (row.tr.hidden === show) row.tr.hidden = !show;
    const result = amounts(lang, rulesOf(lang));
    const before = result.of ? result.before : lang.selected?.[baseOf(lang)]?.documents;
    const changed = before == null || result.documents.value === null ? null : Math.round(result.documents.value) - Math.round(before);
    const all = result.of ?? exact(lang.documents);
    fillQuantity(row.all, all);
    fillRow(row, result, all.value, changed);
    if (!see) continue;
    of += all.value ?? 0;
    ofExact &&= all.exact;
    change += result.documents.value === null && lang.documents ? NaN : changed ?? 0;
    if (QUANTITIES.every(q => result[q].exact)) exactRows += 1;
    for (const q of QUANTITIES) {
      const amount = result[q], t = total[q];
      t.value += amount.value ?? (lang.documents ? NaN : 0); // a total without a language would be wrong
      t.exact &&= amount.exact;
      t.error = Math.hypot(t.error, amount.error);
    }
  }
  for (const q of QUANTITIES) if (Number.isNaN(total[q].value)) total[q].value = null;
  inputs.allRows.hidden = rowsLeft >= 0;
  setText(inputs.allRows, `Show all ${count(visible.size)} languages`);
  const foot = cells.get('total');
  const how = exactRows === visible.size ? 'exact' : `exact in ${count(exactRows)} of ${count(visible.size)} languages`;
  fillQuantity(foot.all, {value: of, exact: ofExact, error: 0});
  setText(foot.name, visible.size < languages.length ? `Total of ${count(visible.size)} of ${count(languages.length)} languages` : 'Total');
  fillRow(foot, {...total, how}, of, change);
  const part = q => total[q].value === null ? null : `${total[q].exact ? '' : 'about '}${q === 'documents' ? count(Math.round(total[q].value)) : short(total[q].value)} ${q}`;
  setText(inputs.totals, `Kept: ${QUANTITIES.map(part).filter(Boolean).join(', ') || 'nothing known'}; ${percent(shareOf(total.documents, of), 4)} of ${ofExact ? '' : 'about '}${count(Math.round(of))} ${isNarrowed() ? 'such ' : ''}documents in ${some(visible.size, 'language')}. ` +
    `Against the run: ${change > 0 ? '+' : ''}${count(change)} documents. (${how})`);
  drawMoves();
}

const drawMoves = debounced(60, () => {
  const moves = {in: [], out: []};
  let [looked, unjudged] = [0, 0];
  for (const lang of shown()) {
    if (!lang.examples?.length) continue;
    const base = baseOf(lang), rules = rulesOf(lang);
    looked += lang.examples.filter(isSeen).length;
    if (sameAsRun(lang, rules) === base) continue;
    if (unmade(lang, rules)) { unjudged += 1; continue; }
    const why = judge(lang);
    for (const example of lang.examples.filter(isSeen)) {
      const before = isSelected(lang, example, base), reason = why(example);
      if (before !== (reason === null)) moves[before ? 'out' : 'in'].push({lang, example, reason: reason ?? (isSelected(lang, example, selectionsOf(lang).at(-1)) ? `in the run only ${example.verdict} has it` : `in the run: ${example.verdict}`)});
    }
  }
  const part = (name, list, kind) => [h('h4', {}, `${name}: ${count(list.length)}`),
    paged(list, 5, ({lang, example, reason}) => documentCard(lang, example, {kind, reason}))];
  inputs.moves.replaceChildren(h('p', {class: 'note'}, `Of the ${count(looked)} documents of the page (those of the section Documents), by their exact ranks and the cuts of the present state; with several thresholds these cuts are estimated from the sample.`),
    ...(moves.in.length + moves.out.length ? [...part('Enter', moves.in, 'in'), ...part('Leave', moves.out, 'out')]
      : [h('p', {}, unjudged ? `In ${some(unjudged, 'language')} it is not known which of them enter or leave.` : 'None of them enters or leaves.')]).flat());
});

/** The first items of a list, and a button for more. */
function paged(items, size, make) {
  const list = h('div'), more = h('button', {type: 'button', class: 'more'}), paper = h('p', {class: 'paper'});
  let at = 0;
  const next = () => {
    list.append(...items.slice(at, at + size).map(make));
    at += size;
    more.hidden = at >= items.length;
    more.textContent = `Show more (${count(items.length - at)} left)`;
    paper.textContent = more.hidden ? '' : `${count(items.length - at)} more are in the page on the screen.`;
  };
  more.addEventListener('click', next);
  next();
  return h('div', {}, list, more, paper);
}

// ---------------------------------------------------------------- documents

const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}\p{Script=Hanifi_Rohingya}\p{Script=Mandaic}\p{Script=Samaritan}]/gu;

/** By most letters, not by the first one: an Arabic text may begin with a Latin name. */
function directionOf(text) {
  const letters = text.match(/\p{L}/gu)?.length ?? 0;
  return letters && (text.match(RIGHT_TO_LEFT)?.length ?? 0) > letters / 2 ? 'rtl' : letters ? 'ltr' : 'auto';
}

/** A link only for http and https; other schemes stay text. */
function link(url) {
  let parsed = null;
  try { parsed = new URL(url); } catch { /* no URL: shown as it is */ }
  const isWeb = parsed?.protocol === 'https:' || parsed?.protocol === 'http:';
  return isWeb ? h('a', {href: parsed.href, rel: 'noopener noreferrer', target: '_blank'}, h('bdi', {}, url)) : h('bdi', {}, url);
}

/** The code as a tag of BCP 47: deu_Latn is de-Latn. */
function tagOf(code) {
  try { return Intl.getCanonicalLocales(code.replaceAll('_', '-'))[0]; } catch { return null; }
}

function documentCard(lang, example, {kind, reason} = {}) {
  const text = String(example.text ?? '');
  const scores = Object.entries(example.scores ?? {}).map(([head, score]) => {
    const rank = example.ranks?.[head], n = lang.scores?.[head]?.n;
    return `${head} ${number(score)}${rank >= 0 && n ? ` (rank ${count(rank + 1)} of ${count(n)})` : ''}`;
  });
  const why = Object.entries(example.shown_for ?? {}).map(([head, words]) => `${head}: ${words.map(wordOf).join(', ')}`).join('; ');
  const selected = !String(example.verdict).startsWith('removed');
  return h('article', {class: kind ?? (selected ? 'in' : 'out'), 'data-language': lang.language, 'data-id': example.id},
    h('p', {class: 'meta'}, h('b', {}, label(lang)), ' · ', h('bdi', {}, example.id), ' · ',
      count(example.bytes), ' bytes', example.tokens == null ? '' : ` · ${count(example.tokens)} tokens`, example.url ? [' · ', link(example.url)] : ''),
    h('p', {class: 'meta'}, h('bdi', {}, scores.join(' · ') || 'no scores'), ' · ', selected ? 'kept by ' : '', h('bdi', {}, example.verdict ?? '–'), why ? [' · ', h('bdi', {}, why)] : ''),
    reason ? h('p', {class: `meta ${kind === 'in' ? 'up' : 'down'}`}, kind === 'in' ? 'enters; ' : 'leaves; ', h('bdi', {}, reason)) : null,
    h('p', {class: 'text', dir: directionOf(text), lang: tagOf(lang.language)}, text || '(no text)'));
}

const wordOf = word => word.replace('above_cut', 'just kept by').replace('below_cut', 'just missed by').replace(/^top$/, 'highest').replace(/^bottom$/, 'lowest');

function drawDocuments(body) {
  const reasons = new Map([['', 'all'], ['top', 'highest'], ['above_cut', 'just above a cut'], ['below_cut', 'just below a cut'], ['decile', 'deciles'], ['bottom', 'lowest']]);
  const choose = (name, options) => [name, h('select', {name, change: () => fill()}, options.map(([value, text]) => h('option', {value}, text)))];
  const group = choose('Show', [...reasons]), language = choose('Of', shown().filter(lang => lang.examples?.length).map(lang => [lang.language, label(lang)]));
  const list = h('div', {class: 'sides'}), told = h('p', {class: 'note', role: 'status'});
  const fill = () => {
    const head = state.head || (data.heads ?? []).at(-1), lang = byCode.get(language[1].value), why = group[1].value;
    const rank = example => { const r = example.ranks?.[head]; return r == null || r < 0 ? Infinity : r; };
    const found = (lang?.examples ?? []).filter(example => {
      const words = state.head ? example.shown_for?.[state.head] ?? [] : Object.values(example.shown_for ?? {}).flat();
      return (!state.head || words.length) && (!why || words.some(word => word.startsWith(why))) && isSeen(example);
    }).toSorted((a, b) => rank(a) - rank(b) || 0);
    told.textContent = `${some(found.length, 'document')}${head ? `, by rank of ${head}` : ''}; kept is what any selection keeps.`;
    list.replaceChildren(...[['Kept', true], ['Dropped', false]].map(([name, is]) => {
      const side = found.filter(example => isSelected(lang, example, selectionsOf(lang).at(-1)) === is);
      return h('div', {}, h('h3', {}, `${name}: ${count(side.length)}`), paged(side, 10, example => documentCard(lang, example)));
    }));
  };
  body.append(h('p', {}, 'Documents to read: the first characters of the highest and lowest of each head, of both sides of every cut, and of each tenth.'),
    h('div', {class: 'filters', role: 'search', 'aria-label': 'Filter documents'}, [language, group].map(([name, element]) => h('label', {}, name, element))), told, list);
  fill();
}

// ---------------------------------------------------------------- sections of tables and figures

const visibleHeads = lang => (data.heads ?? []).filter(head => lang.scores?.[head] && (!state.head || state.head === head));

function languageDetail(lang) {
  const heads = visibleHeads(lang);
  const parts = ['0.1', '1', '5', '10', '25', '50', '75', '90', '95', '99', '99.9'].filter(part => heads.some(head => isNumber(lang.scores[head].quantiles?.[part])));
  const dropped = heads.some(head => lang.scores[head].dropped) ? ['dropped by the cascade'] : [];
  const rows = heads.map(head => {
    const s = lang.scores[head];
    return [head, s.n, ...dropped.length ? [s.dropped ?? 0] : [], s.unscored, s.nan, s.mean, s.std, s.min, ...parts.map(part => s.quantiles?.[part]), s.max];
  });
  const numbers = ['documents', ...dropped, 'without score', 'not a number', 'mean', 'std', 'min', ...parts.map(part => `${part}%`), 'max'];
  const thresholds = (lang.thresholds ?? []).map(rule => [rule.selection, describe(rule), rule.candidates?.documents, rule.kept?.documents,
    {value: rule.kept?.documents / rule.candidates?.documents, text: percent(rule.candidates?.documents ? rule.kept.documents / rule.candidates.documents : null)}, rule.score, rule.logit]);
  const own = controls.filter(control => lang.scores?.[control.head]);
  return [
    rows.length ? table(`Scores of ${label(lang)}, with quantiles`, [{name: 'head'}, ...numbers.map(name => ({name, number: true, digits: 4}))], rows) : h('p', {}, 'No scores.'),
    thresholds.length ? table(`Thresholds of ${label(lang)}, in order`, [{name: 'selection'}, {name: 'threshold'}, {name: 'candidates', number: true}, {name: 'kept', number: true}, {name: 'share', number: true}, {name: 'score at the cut', number: true, digits: 5}, {name: 'logit', number: true, digits: 5}], thresholds) : h('p', {}, 'No thresholds.'),
    own.length ? [h('h4', {class: 'controls-title'}, 'Rates of this language alone'), h('div', {class: 'controls'}, own.map(control => rateControl(control, lang)))] : [],
    languages.length > FEW ? h('div', {class: 'grid'}, heads.map(head => density(lang, head))) : [],
  ].flat();
}

function drawLanguages(body) {
  const visible = shown();
  const scale = inputs.scale = h('select', {change: () => { state.scale = scale.value; filterChanged(); }},
    h('option', {value: 'logit'}, 'logit'), h('option', {value: 'probability'}, 'probability'));
  scale.value = state.scale;
  body.append(h('div', {class: 'filters'}, h('label', {}, 'Scores as', scale)));
  if (languages.length <= FEW) {
    for (const head of data.heads ?? []) {
      const having = visible.filter(lang => visibleHeads(lang).includes(head));
      if (having.length) body.append(h('h3', {}, `Densities of ${head}; dashed: the run’s cuts, in the colours of their selections`), h('div', {class: 'grid'}, having.map(lang => density(lang, head))));
    }
    body.append(h('h3', {}, 'Scores, thresholds and rates by language'));
  } else body.append(h('p', {}, `Open a language to see its densities, cuts, and to set rates of its own. The filter “Language” above finds one by code or name. Shown: ${count(visible.length)} of ${count(languages.length)}.`));
  if (!visible.length) body.append(h('p', {}, 'No language matches the filter.'));
  body.append(paged(visible, 100, lang => {
    const own = lang.selected?.[baseOf(lang)]?.documents;
    return disclosure([h('bdi', {}, label(lang)), h('span', {class: 'number'}, own == null ? `${count(lang.documents)} documents` : `${count(own)} of ${count(lang.documents)} documents`)],
      () => languageDetail(lang), {class: 'language', 'data-language': lang.language, open: visible.length === 1});
  }));
}

function drawLengths(body) {
  const measures = ['words', 'characters', 'bytes', 'tokens'];
  const choice = h('select', {change: () => fill()}, measures.map(name => h('option', {value: name}, name)));
  const list = h('div');
  const fill = () => {
    const rows = shown().flatMap(lang => ['all', ...selectionsOf(lang)].filter(group => lang.length?.[group])
      .map(group => ({lang, group, documents: lang.length[group].documents, ...lang.length[group][choice.value]})));
    const numbers = () => table(`Length in ${choice.value}: all documents, and those kept`, [{name: 'language'}, {name: 'documents of'}, {name: 'documents', number: true}, {name: 'mean', number: true, digits: 5}, {name: 'std', number: true, digits: 5}, {name: 'median', number: true}],
      rows.map(row => [label(row.lang), row.group, row.documents, row.mean, row.std, row.median]));
    const drawn = rows.filter(row => isNumber(row.mean));
    const groups = [...new Set(drawn.map(row => row.group))], few = new Set(drawn.map(row => row.lang)).size;
    const bands = drawn.map(row => ({...row, language: row.lang.language, low: Math.max(0, row.mean - (row.std ?? 0)), high: row.mean + (row.std ?? 0)}));
    list.replaceChildren(...(!drawn.length ? [h('p', {}, 'No lengths are known.')] : few > FEW ? [h('p', {class: 'note'}, `A figure is drawn for up to ${FEW} languages; use the filter.`), numbers()] : [legend(groups),
      figure(`Length in ${choice.value}, before and after`, `Bars: mean; lines: one standard deviation to each side, not below 0; dots: median.${choice.value === 'words' ? ' Letters of scripts without spaces count as words.' : ''}`, width => ({
        height: 40 + few * (groups.length * 12 + 12), marginLeft: 76, marginRight: 20,
        x: {label: choice.value, grid: true, ticks: width < 500 ? 4 : 8, tickFormat: short}, y: {axis: null, domain: groups, padding: .15}, fy: {label: null, padding: .15}, color: scaleOf(groups),
        marks: [
          Plot.barX(bands, {fy: 'language', y: 'group', x: 'mean', fill: 'group', fillOpacity: .55}),
          Plot.ruleY(bands, {fy: 'language', y: 'group', x1: 'low', x2: 'high', stroke: 'currentColor'}),
          Plot.dot(bands, {fy: 'language', y: 'group', x: 'median', r: 3, fill: 'currentColor'}),
          Plot.ruleX([0]),
        ],
      }), numbers)]));
  };
  body.append(h('div', {class: 'filters'}, h('label', {}, 'Measure', choice)), list);
  fill();
}

function drawTokens(body) {
  const quantity = noTokens ? 'bytes' : 'tokens', visible = shown();
  const rows = visible.flatMap(lang => selectionsOf(lang).map(name => ({language: lang.language, lang, name, part: lang.selected[name], share: lang[quantity] ? lang.selected[name][quantity] / lang[quantity] : null})));
  const numbers = () => table('What each selection keeps', [{name: 'language'}, {name: 'selection'}, ...['documents', 'kept', 'share', 'bytes', 'kept', 'share', 'tokens', 'kept', 'share'].map(name => ({name, number: true}))],
    rows.map(({lang, name, part}) => [label(lang), name, ...QUANTITIES.flatMap(q => [lang[q], part[q], {value: part[q] / lang[q], text: percent(lang[q] && part[q] != null ? part[q] / lang[q] : null)}])]));
  if (!rows.length) return body.append(h('p', {}, 'No selection was made.'));
  if (noTokens) body.append(h('p', {class: 'note'}, 'Tokens were not counted; shares are of bytes.'));
  if (visible.length > FEW) return body.append(numbers());
  const names = [...new Set(rows.map(row => row.name))];
  body.append(names.length > 1 ? legend(names) : '', figure(`Share of ${quantity} kept`, `By language and selection, of all ${quantity} of the language.`, width => ({
    height: 40 + visible.length * (names.length * 11 + 12), marginLeft: 76, marginRight: 44,
    x: {label: `% of ${quantity}`, percent: true, grid: true, ticks: width < 500 ? 4 : 8}, y: {axis: null, domain: names, padding: .15}, fy: {label: null, padding: .15}, color: scaleOf(names),
    marks: [Plot.barX(rows, {fy: 'language', y: 'name', x: 'share', fill: 'name', fillOpacity: .75}),
      Plot.text(rows, {fy: 'language', y: 'name', x: 'share', text: row => short(row.part[quantity]), textAnchor: 'start', dx: 4, fontSize: 10}), Plot.ruleX([0])],
  }), numbers));
}

function drawFilters(body) {
  const names = Object.keys(data.filters ?? {}), visible = new Set(shown().map(lang => lang.language));
  const seen = code => visible.has(code) || !byCode.has(code);
  if (!names.length && !data.pii && !data.compare) body.append(h('p', {}, 'The run has no filters.'));
  for (const name of names) body.append(h('h3', {}, `Filter ${name}`), ...filterParts(name, data.filters[name], seen));
  if (data.pii) {
    const rows = Object.entries(data.pii.languages ?? {}).filter(([code]) => seen(code)).flatMap(([code, kinds]) =>
      Object.entries(kinds).map(([kind, amount]) => [code, kind, amount.documents, amount.occurrences, amount.placeholders]));
    body.append(h('h3', {}, 'Personal data'), rows.length ? table('Personal data found in exported texts', [{name: 'language'}, {name: 'kind'}, ...['documents', 'occurrences', 'placeholders'].map(n => ({name: n, number: true}))], rows) : h('p', {}, 'None was found.'));
  }
  if (data.compare) body.append(h('h3', {}, 'Compared with ', h('bdi', {}, data.compare.with)), table('Documents kept here and there', [{name: 'language'}, ...['here', 'there', 'both', 'share of here', 'Jaccard'].map(n => ({name: n, number: true}))],
    data.compare.languages.filter(row => seen(row.language)).map(({language, here, there, both}) => [language, here, there, both, {value: both / here, text: percent(here ? both / here : null)}, here + there - both ? both / (here + there - both) : null])),
    data.compare.unknown?.documents ? h('p', {}, `No document of this run has ${count(data.compare.unknown.documents)} of its ids: `, h('bdi', {}, data.compare.unknown.ids.join(', ')), data.compare.unknown.documents > data.compare.unknown.ids.length ? ', …' : '') : '');
}

/** The tables of `filters/<name>.json`: by language and reason, by detail (agent or task), host, note, and leaks. */
function filterParts(name, report, seen) {
  const {settings = {}, total = {}, languages: found = {}} = report;
  const isRobots = settings.kind === 'robots', isNear = settings.kind === 'embeddings', isBenchmark = settings.kind === 'decontamination' || report.leaks;
  const told = Object.entries(settings).filter(([, value]) => ['string', 'number', 'boolean'].includes(typeof value)).map(([key, value]) => `${key} ${value}`);
  const codes = Object.keys(found).filter(seen).sort();
  const amount = part => [part?.documents ?? 0, part?.bytes ?? 0, part?.tokens];
  const share = part => ({value: part.found?.documents / part.seen?.documents, text: percent(part.seen?.documents ? part.found.documents / part.seen.documents : null)});
  const kinds = [...new Set(codes.flatMap(code => Object.keys(found[code].reasons ?? {})))].sort();
  const many = (key, title, column, note) => {
    const all = Object.entries(total[key] ?? {});
    if (!all.length) return [];
    const rows = all.sort((a, b) => b[1].documents - a[1].documents).map(([what, part]) => [what, ...amount(part)]);
    const single = codes.length > 1 && key !== 'hosts' ? disclosure(`${title}, by language`, () => table(`${name}: ${title}, by language`, [{name: 'language'}, {name: column}, ...QUANTITIES.map(n => ({name: n, number: true}))],
      codes.flatMap(code => Object.entries(found[code][key] ?? {}).map(([what, part]) => [code, what, ...amount(part)])))) : '';
    return [table(`${name}: ${title}${note ?? ''}`, [{name: column}, ...QUANTITIES.map(n => ({name: n, number: true}))], rows, 20), single];
  };
  return [
    h('p', {class: 'note'}, h('bdi', {}, told.join(' · '))),
    table(`${name}: found by language${kinds.length ? ' and reason (documents)' : ''}`, [{name: 'language'}, ...['looked at', 'found', 'share', 'bytes found', 'tokens found', ...kinds].map(n => ({name: n, number: true}))],
      [...codes.map(code => [code, found[code]]), ['total', total]].map(([code, part]) => [code, part.seen?.documents, part.found?.documents, share(part), part.found?.bytes, part.found?.tokens, ...kinds.map(kind => part.reasons?.[kind]?.documents ?? 0)])),
    ...many('details', isRobots ? 'by agent' : isBenchmark ? 'by task' : isNear ? 'by similarity' : 'by detail', isRobots ? 'agent' : isBenchmark ? 'task' : isNear ? 'similarity from' : 'detail', isNear ? '' : ' (a document may count under several)'),
    isNear ? disclosure('Least similar near duplicates', () => table(`${name}: least similar near duplicates`, [{name: 'language'}, {name: 'document'}, {name: 'better document'}, {name: 'similarity', number: true, digits: 4}], codes.flatMap(code => (found[code].examples ?? []).map(({id, of, similarity}) => [code, id, of, similarity])), 20)) : '',
    ...many('hosts', 'by host', 'host'), ...many('notes', 'what was known', 'note'),
    report.leaks?.tasks?.length ? table(`${name}: contamination by task`, [{name: 'task'}, ...['items', 'too short', 'items hit', 'n-grams', 'leaked n-grams', 'leaked %'].map(n => ({name: n, number: true}))],
      report.leaks.tasks.map(t => [t.task, t.items, t.not_covered, t.items_hit, t.ngrams, t.leaked_ngrams, t.leaked_percent])) : '',
    report.leaks?.ngrams?.length ? disclosure('N-grams of most documents', () => table(`${name}: n-grams of most documents`, [{name: 'n-gram', words: true}, {name: 'documents', number: true}], report.leaks.ngrams, 20)) : '',
  ];
}

function drawDomains(body) {
  const having = shown().filter(lang => lang.domains?.length);
  if (!having.length) return body.append(h('p', {}, 'No domains are known: the documents have no URLs.'));
  const make = lang => {
    const name = baseOf(lang), all = sum(lang.domains.map(d => d.documents)), kept = sum(lang.domains.map(d => d.kept?.[name]));
    const rows = lang.domains.map(d => {
      const [of, mine] = [all ? d.documents / all : 0, kept ? (d.kept?.[name] ?? 0) / kept : 0];
      return {domain: d.domain, documents: d.documents, kept: d.kept?.[name] ?? 0, of, mine, lift: of && kept ? mine / of : null};
    });
    const most = rows.toSorted((a, b) => Math.abs(b.mine - b.of) - Math.abs(a.mine - a.of)).slice(0, 20).sort((a, b) => (b.lift ?? 0) - (a.lift ?? 0));
    const numbers = () => table(`Domains of ${label(lang)}${lang.domains_sampled ? ', counted in a sample' : ''}; kept by ${name ?? 'nothing'}`, [{name: 'domain'}, ...['documents', 'kept', 'share of all', 'share of kept', 'lift'].map(n => ({name: n, number: true}))],
      rows.map(r => [r.domain, r.documents, r.kept, {value: r.of, text: percent(r.of)}, {value: r.mine, text: percent(r.mine)}, r.lift]), 50);
    const clip = text => text.length > 28 ? `${text.slice(0, 27)}…` : text;
    return figure(`Domains of ${label(lang)}`, `The ${some(most.length, 'domain')} whose share changes most with ${name ?? 'no selection'}, by lift (share of kept over share of all)${lang.domains_sampled ? ', counted in a sample' : ''}. Hollow: share of all documents; filled: share of those kept.`, width => ({
      height: 50 + most.length * 17, marginLeft: width < 500 ? 130 : 190, marginRight: 20, x: {label: '% of documents', percent: true, grid: true, ticks: width < 500 ? 4 : 8}, y: {label: null, domain: most.map(r => r.domain), tickFormat: clip, type: 'point'},
      marks: [Plot.ruleY(most, {y: 'domain', x1: 'of', x2: 'mine', stroke: colourOf(name), strokeWidth: 2}),
        Plot.dot(most, {y: 'domain', x: 'of', r: 3.5, stroke: 'currentColor', fill: 'var(--page)'}),
        Plot.dot(most, {y: 'domain', x: 'mine', r: 4, fill: colourOf(name)}), Plot.ruleX([0])],
    }), numbers);
  };
  body.append(having.length === 1 ? make(having[0]) : paged(having, 100, lang =>
    disclosure(h('bdi', {}, `${label(lang)}: ${some(lang.domains.length, 'domain')}`), () => make(lang), {class: 'language', open: lang === having[0]})));
}

function drawAgreement(body) {
  const codes = new Set(shown().map(lang => lang.language));
  const rows = (data.agreement ?? []).filter(row => codes.has(row.language) && (!state.head || row.heads.includes(state.head)));
  if (!rows.length) return body.append(h('p', {}, 'There are no two heads to compare.'));
  const pairs = rows.map(row => ({language: row.language, pair: row.heads.join(' and '), spearman: row.spearman, jaccard: row.overlap?.jaccard, rate: row.overlap?.rate}));
  const numbers = () => table('Agreement of heads', [{name: 'language'}, {name: 'heads'}, ...['Spearman', 'overlap of the best', 'Jaccard'].map(n => ({name: n, number: true}))],
    pairs.map(p => [p.language, p.pair, p.spearman, {value: p.rate, text: percent(p.rate)}, p.jaccard]));
  const langs = [...new Set(pairs.map(p => p.language))], names = [...new Set(pairs.map(p => p.pair))];
  if (langs.length > FEW) return body.append(h('p', {class: 'note'}, `A figure is drawn for up to ${FEW} languages; use the filter.`), numbers());
  const tiles = pairs.flatMap(p => [['Spearman', p.spearman], [`Jaccard, best ${percent(p.rate)}`, p.jaccard]].filter(([, value]) => isNumber(value)).map(([measure, value]) => ({...p, measure, value})));
  const measures = [...new Set(tiles.map(t => t.measure))];
  body.append(...names.map(pair => figure(`Agreement of ${pair}`, 'Spearman’s correlation of the scores, and the overlap (Jaccard) of the documents that each head finds best. Grey: positive; red: negative.', () => ({
    width: 130 + measures.length * 130, height: 40 + langs.length * 26, marginLeft: 90, marginTop: 28, x: {label: null, axis: 'top', domain: measures}, y: {label: null, domain: langs}, opacity: {domain: [0, 1], range: [.06, .5]},
    marks: [Plot.cell(tiles.filter(t => t.pair === pair), {x: 'measure', y: 'language', fill: t => t.value < 0 ? 'var(--out)' : 'var(--soft)', fillOpacity: t => Math.abs(t.value), inset: 1}),
      Plot.text(tiles.filter(t => t.pair === pair), {x: 'measure', y: 'language', text: t => t.value.toFixed(2), fill: 'currentColor'})],
  }), numbers)));
}

// ---------------------------------------------------------------- the page

const sections = [
  {id: 'overview', title: 'Languages', draw: drawOverview},
  {id: 'explorer', title: 'Explorer', draw: drawExplorer},
  {id: 'languages', title: 'Scores', draw: drawLanguages},
  {id: 'lengths', title: 'Lengths', draw: drawLengths},
  {id: 'tokens', title: 'Tokens', draw: drawTokens},
  {id: 'filters', title: 'Filters', draw: drawFilters},
  {id: 'domains', title: 'Domains', draw: drawDomains},
  {id: 'agreement', title: 'Agreement', draw: drawAgreement},
  {id: 'documents', title: 'Documents', draw: drawDocuments},
];

/** Draws a section now, or, where there are many languages, when it comes near. */
function place(section) {
  const body = h('div', {});
  const draw = () => { body.make = null; body.replaceChildren(); section.draw(body); };
  section.body.replaceChildren(body);
  if (languages.length <= FEW || ['overview', 'explorer'].includes(section.id)) return draw();
  body.style.minHeight = '12rem';
  body.classList.add('lazy');
  body.make = () => { body.style.minHeight = ''; draw(); };
  observer.observe(body);
}

let frame = 0;
/** A rate moved: numbers and controls follow; figures are of the run and stay. */
function stateChanged() {
  saveHash();
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(refresh);
}

function refresh() {
  for (let i = widgets.length - 1; i >= 0; i -= 1) {
    if (widgets[i].element.isConnected) widgets[i].sync();
    else widgets.splice(i, 1); // of a section that was drawn anew
  }
  updateExplorer();
}

/** A filter changed: all sections but the explorer are drawn anew. */
function filterChanged() {
  saveHash();
  refresh();
  for (const section of sections) if (section.id !== 'explorer') place(section);
}

function showState() {
  for (const key of ['lang', 'head', 'selection', 'domain', 'least', 'most']) if (inputs[key]) inputs[key].value = state[key];
}

/** Paper has no disclosures: all are opened, and what is drawn late is drawn; of many languages as many as fit. */
function preparePrint() {
  const open = selector => {
    for (const details of [...document.querySelectorAll(selector)].slice(0, languages.length > FEW ? FEW : Infinity)) {
      if (details.open) continue;
      details.fill?.();
      details.open = details.wasClosed = true;
    }
  };
  const draw = () => document.querySelectorAll('.lazy').forEach(slot => slot.make && reveal(slot));
  mostRows = Infinity;
  updateExplorer();
  draw();
  open('details.language');
  draw();
  open('main details:not(.language):not(.bins)'); // 200 bins of every figure would drown the rest
}

function afterPrint() {
  mostRows = 100;
  updateExplorer();
  for (const details of document.querySelectorAll('details')) if (details.wasClosed) details.open = details.wasClosed = false;
}

readHash();
drawNav();
drawFacts();
for (const section of sections) {
  section.body = h('div');
  document.getElementById('main').append(h('section', {id: section.id, 'aria-labelledby': `${section.id}-title`, tabindex: '-1'}, h('h2', {id: `${section.id}-title`}, section.title), section.body));
}
for (const section of sections) place(section);
showState();
refresh();
addEventListener('hashchange', () => { readHash(); showState(); filterChanged(); });
addEventListener('beforeprint', preparePrint);
addEventListener('afterprint', afterPrint);
matchMedia('print').addEventListener('change', event => event.matches ? preparePrint() : afterPrint());
document.documentElement.dataset.ready = Math.round(performance.now());
})();
