import type { Section } from './harness.ts';

const WIDTH = 860;
const LABEL = 330;
const BAR = 22;
const TITLE = 40;

/**
 * Draws a panel of horizontal bars for each panel of the sections, as an SVG that is legible on light and
 * dark pages.
 */
export function plot(sections: readonly Section[]): string {
  const drawn = sections.flatMap(({ title, panels = [] }) => panels.map((panel) => ({ title, ...panel })));
  let y = 0;
  const panels = drawn.map(({ title, unit, digits, values }) => {
    const longest = Math.max(...values.map(({ value }) => value));
    const lines = values.map(({ name, value }, i) => {
      const top = y + TITLE + i * BAR;
      const width = Math.max(1, ((WIDTH - LABEL - 90) * value) / longest);
      const fill = i === 0 ? '#2f7d4f' : '#8a8f98';
      return [
        `<text x="${LABEL - 8}" y="${top + 15}" text-anchor="end">${escaped(name)}</text>`,
        `<rect x="${LABEL}" y="${top + 3}" width="${width.toFixed(1)}" height="${BAR - 6}" rx="2" fill="${fill}"/>`,
        `<text x="${(LABEL + width + 6).toFixed(1)}" y="${top + 15}">${value.toLocaleString('en', { maximumFractionDigits: digits })}</text>`,
      ].join('');
    });
    const heading = `<text x="0" y="${y + 26}" font-weight="bold">${escaped(title)} (${escaped(unit)})</text>`;
    y += TITLE + values.length * BAR + 12;
    return heading + lines.join('');
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y}" width="${WIDTH}" height="${y}" font-family="system-ui, sans-serif" font-size="13" fill="#6b7280">${panels.join('')}</svg>\n`;
}

const escaped = (text: string) => text.replace(/[&<>]/g, (char) => `&#${char.charCodeAt(0)};`);
