import { plantedInLua } from './plant-lua.ts';
import { plantedInTypeScript } from './plant-typescript.ts';

/** One plausible mistake in one place of one file. */
export interface Mutant {
  readonly file: string;
  /** Counted from 1. */
  readonly line: number;
  /** Offsets of its begin and its end. */
  readonly start: number;
  readonly end: number;
  /** The text there, and the text that takes its place. */
  readonly from: string;
  readonly to: string;
}

/** All mutants of a file, in the order of its text. */
export function mutantsOf(file: string, text: string): Mutant[] {
  const plantings = file.endsWith('.lua') ? plantedInLua(text) : plantedInTypeScript(file, text);
  const seen = new Set<string>();
  return plantings
    .map(({ start, end, to }) => {
      const line = text.slice(0, start).split('\n').length;
      return { file, line, start, end, from: text.slice(start, end), to };
    })
    .filter(({ start, end, from, to }) => {
      const id = `${start} ${end} ${to}`;
      if (from === to || seen.has(id)) return false;
      seen.add(id);
      return true;
    })
    .sort((a, b) => a.start - b.start || a.end - b.end);
}

/** The text with the mutant in it. */
export function plant(text: string, { start, end, to }: Mutant): string {
  return text.slice(0, start) + to + text.slice(end);
}

/** Text of the mutant's lines before and after, without indentation. */
export function shown(text: string, mutant: Mutant): { before: string; after: string } {
  const from = text.lastIndexOf('\n', mutant.start - 1) + 1;
  const to = (text.indexOf('\n', mutant.end) + text.length + 1) % (text.length + 1);
  const lines = (whole: string) => whole.replace(/\s+/g, ' ').trim();
  const before = text.slice(from, to);
  const after = text.slice(from, mutant.start) + mutant.to + text.slice(mutant.end, to);
  return { before: lines(before), after: lines(after) };
}
