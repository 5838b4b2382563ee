const LINES_KEPT = 15;
const LENGTH_MAX = 500;

/** The latest lines of each that told something in this test file, for whoever reads why a test failed. */
const words = new Map<string, string[]>();

/**
 * Keeps lines that a process of ours wrote, or a call and its answer, until newer ones of its name come. A line is kept once
 * where it is the same again.
 */
export function keepWords(name: string, text: string): void {
  const lines = words.get(name) ?? [];
  words.set(name, lines);
  for (const whole of text.split('\n')) {
    const line = whole.slice(0, LENGTH_MAX);
    if (line !== '' && line !== lines.at(-1)) lines.push(line);
  }
  if (lines.length > LINES_KEPT) lines.splice(0, lines.length - LINES_KEPT);
}

/** What was kept, by who told it; '' where nobody told anything. */
export const lastWords = (): string =>
  [...words].map(([name, lines]) => [`The latest of ${name}:`, ...lines].join('\n  ')).join('\n');

export const forgetWords = (): void => words.clear();
