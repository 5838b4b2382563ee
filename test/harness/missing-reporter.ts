import type { Reporter, TestModule } from 'vitest/node';
import { missingLine } from './programs.ts';

/** Ends a run with one line about the programs that this machine lacks, where tests were skipped for want of them. */
export default class MissingReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const skipped = modules.flatMap((module) => [...module.children.allTests('skipped')]);
    const line = missingLine(skipped.map(({ fullName }) => fullName));
    if (line !== '') console.log(`\n${line}\n`);
  }
}
