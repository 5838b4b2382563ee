import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { PROJECTS, testsByProject } from './test/harness/projects.ts';
import { SlowestProjectFirst } from './test/harness/sequencer.ts';
import { HOLDS_MS_MAX, TEST_MS_MAX } from './test/harness/waiting.ts';

const tests = testsByProject();

// Processes that tests start are of the same few files each time: Node keeps them compiled, types cut out, for the next.
process.env['NODE_COMPILE_CACHE'] ??= join(import.meta.dirname, 'node_modules/.cache/compiled');

export default defineConfig({
  test: {
    pool: 'forks',
    // Some files wait while others compute. Fewer leave the processors idle; more take them from each other, and look more
    // often for what takes longer: on two busy cores 8 cost a third more processor time than 3.
    maxWorkers: 2 * availableParallelism() + 1,
    sequence: { sequencer: SlowestProjectFirst },
    testTimeout: TEST_MS_MAX,
    hookTimeout: TEST_MS_MAX,
    expect: { poll: { timeout: HOLDS_MS_MAX } },
    reporters: ['default', './test/harness/closing-reporter.ts'],
    projects: PROJECTS.map((name) => ({
      extends: true,
      // A worker takes file after file, and so loads what they share once; `as-found` refuses what one leaves behind for
      // the next. Searches replace modules and settings of the whole process: each has a worker of its own.
      test: {
        name,
        include: tests[name],
        isolate: name === 'proof',
        globalSetup: name === 'unit' ? [] : ['test/harness/build.ts'],
        setupFiles: ['test/harness/as-found.ts'],
        restoreMocks: true,
      },
    })),
  },
});
