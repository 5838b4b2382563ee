import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { PROJECTS, testsByProject } from './test/harness/projects.ts';
import { LongestFirst } from './test/harness/sequencer.ts';

const tests = testsByProject();

export default defineConfig({
  test: {
    pool: 'forks',
    // Tests wait for other processes most of the time: more files at once than there are cores.
    maxWorkers: Math.max(4, availableParallelism() + 1),
    sequence: { sequencer: LongestFirst },
    testTimeout: 20_000,
    hookTimeout: 30_000,
    reporters: ['default', './test/harness/missing-reporter.ts'],
    projects: PROJECTS.map((name) => ({ extends: true, test: { name, include: tests[name] } })),
  },
});
