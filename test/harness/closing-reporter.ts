import { join, relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';
import { missingLine } from './programs.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const SHOWN = 5;

/** Ends a run with its slowest files, and one line about the programs for want of which tests were skipped. */
export default class ClosingReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const files = modules.map((module) => {
      const { collectDuration, duration } = module.diagnostic();
      return { name: relative(ROOT, module.moduleId), ms: collectDuration + duration };
    });
    const skipped = modules.flatMap((module) => [...module.children.allTests('skipped')]);
    const closing = [slowest(files), missingLine(skipped.map(({ fullName }) => fullName))];
    for (const text of closing.filter((each) => each !== '')) console.log(`\n${text}\n`);
  }
}

/** Names the slowest of many files, and how long each took; '' where all are seen anyway. */
export function slowest(files: readonly { readonly name: string; readonly ms: number }[]): string {
  if (files.length <= SHOWN) return '';
  const lines = files
    .toSorted((a, b) => b.ms - a.ms)
    .slice(0, SHOWN)
    .map(({ name, ms }) => `${(ms / 1000).toFixed(1).padStart(7)} s  ${name}`);
  return ['The slowest files:', ...lines].join('\n');
}
