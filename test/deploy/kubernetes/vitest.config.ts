import { defineConfig } from 'vitest/config';

/** `npm run test:kubernetes`: what takes a cluster, which `npm test` does not start. */
export default defineConfig({
  test: {
    include: ['test/deploy/kubernetes/*.cluster.ts'],
    globalSetup: ['test/deploy/kubernetes/build.ts'],
    pool: 'forks',
    // One cluster at a time.
    fileParallelism: false,
    testTimeout: 180_000,
    hookTimeout: 300_000,
  },
});
