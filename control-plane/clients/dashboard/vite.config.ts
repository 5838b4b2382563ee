import { join } from 'node:path';
import type { UserConfig } from 'vite';
import { eventTypes } from '../../core/schema/event-types.ts';
import { operations } from '../../operations.ts';
import { operationsV2 } from '../../unkey-v2/index.ts';

/** The names of all operations that change something. */
const CHANGES = [
  ...new Set(
    [...operations, ...operationsV2].filter(({ kind }) => kind === 'change').map(({ name }) => name),
  ),
];

/**
 * The build of the dashboard: `npm run dashboard` writes assets/, which is committed, so that a start needs
 * no build; a test compares the two.
 */
export default {
  root: import.meta.dirname,
  // Relative, so that it works behind a proxy that adds a path.
  base: './',
  logLevel: 'warn',
  // The same assets whatever NODE_ENV is.
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact', development: false } },
  define: {
    EVENT_TYPES: JSON.stringify(eventTypes.filter((type) => type !== 'webhook.test')),
    CHANGING_OPERATIONS: JSON.stringify(CHANGES),
  },
  build: {
    outDir: join(import.meta.dirname, 'assets'),
    emptyOutDir: true,
    target: 'es2023',
    modulePreload: false,
    rolldownOptions: {
      output: { entryFileNames: 'app.js', chunkFileNames: '[name].js', assetFileNames: 'app[extname]' },
    },
  },
} satisfies UserConfig;
