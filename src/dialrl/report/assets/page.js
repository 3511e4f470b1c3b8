"use strict";
// What every part of the page uses: its data, small DOM helpers, the theme, and the charts.
// Text of models and judges becomes text nodes only (element() below); nothing here parses HTML.

const content = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text nodes. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const shown = (value, digits = 3) => (value === null || value === undefined ? "-" : Number(value.toPrecision(digits)).toString());
const signed = (value) => (value > 0 ? "+" : "") + shown(value);

// theme ---------------------------------------------------------------------------------------------------------------

const PALETTE = ["#3b7dd8", "#e07b39", "#2f9e77", "#b264cf", "#c79a1e", "#d4556b", "#3fa7b8", "#8a8f98"];

function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** Colours of axes and text for Vega, read from the page's own. */
function chartTheme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const text = { labelColor: colour("--soft"), titleColor: colour("--soft"), labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal" };
  return {
    background: "transparent",
    font: "system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, sans-serif",
    axis: { ...text, gridColor: colour("--line"), domainColor: colour("--line"), tickColor: colour("--line"), labelLimit: 160 },
    legend: { ...text, labelColor: colour("--ink"), symbolStrokeWidth: 3 },
    view: { stroke: null },
    range: { category: PALETTE },
    autosize: { type: "fit-x", contains: "padding" },
  };
}

/** Draw ``spec`` into ``place``; resolves to the Vega view. */
async function draw(place, spec) {
  const options = { actions: false, renderer: "svg", ast: true, config: chartTheme() };
  const result = await window.vegaEmbed(place, fitted(spec, place), options);
  return result.view;
}

/** Charts stacked on each other cannot ask their place for its width; they are told. */
function fitted(spec, place) {
  if (!spec.vconcat) return spec;
  const width = Math.max(place.clientWidth, 120);
  return { ...spec, vconcat: spec.vconcat.map((view) => ({ ...view, width })) };
}

// charts --------------------------------------------------------------------------------------------------------------

const views = new Map(); // chart id -> Vega view

function chartsPage() {
  const page = byId("charts");
  const cards = content.cards.map((card) => element("div", { class: "card" }, element("span", {}, card.name), element("b", {}, card.value), element("span", {}, card.note)));
  page.append(element("div", { class: "cards" }, ...cards));
  if (content.warnings.length) {
    const lines = content.warnings.map((sentence) => element("li", {}, sentence));
    page.append(element("details", { class: "warnings" }, element("summary", {}, `${content.warnings.length} warning${lines.length > 1 ? "s" : ""} of the stages`), element("ul", {}, ...lines)));
  }
  for (const section of [...new Set(content.charts.map((chart) => chart.section))]) {
    const figures = content.charts.filter((chart) => chart.section === section).map(chartFigure);
    page.append(element("h2", {}, section), element("div", { class: "charts" }, ...figures));
  }
  if (content.tables.length) page.append(element("h2", {}, "Tables"), ...content.tables.map(tableFigure));
}

/** A table of texts; the first column names the row. */
function tableFigure(table) {
  const head = element("tr", {}, ...table.columns.map((name) => element("th", { scope: "col" }, name)));
  const cell = (text, place) => element(place ? "td" : "th", place ? {} : { scope: "row" }, text);
  const rows = table.rows.map((row) => element("tr", {}, ...row.map(cell)));
  const body = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("figure", { class: "table" }, element("h3", {}, table.title), element("p", { class: "caption" }, table.caption), element("div", { class: "scroll" }, body));
}

function chartFigure(chart) {
  const plot = element("div", { class: "plot", id: `plot-${chart.id}` });
  const wide = chart.id === "curve" ? "wide" : null;
  return element("figure", { class: wide, "data-chart": chart.id }, element("h3", {}, chart.title), element("p", { class: "caption" }, chart.caption), plot);
}

async function drawCharts() {
  for (const chart of content.charts) {
    const place = byId(`plot-${chart.id}`);
    place.replaceChildren();
    views.set(chart.id, await draw(place, chart.spec));
  }
}
