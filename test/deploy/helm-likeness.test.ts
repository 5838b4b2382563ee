import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { lacking } from '../harness/programs.ts';
import { helm, isHook, renderChart } from './helm.ts';
import { likeness } from './helm-likeness.ts';
import { kustomize, render } from './kustomize.ts';

const KUBERNETES = join(import.meta.dirname, '..', '..', 'deploy', 'kubernetes');
const SETTINGS = 'ConfigMap keyfence-verifier';
const why = lacking([...(helm ? [] : (['helm'] as const)), ...(kustomize ? [] : (['kustomize'] as const))]);
const alone = {
  'controlPlane.enabled': false,
  'redis.mode': 'external',
  'redis.external.url': 'redis://keyfence-redis.keyfence:6379',
};

/** Folders of kustomize, and the values that choose the same of the chart. */
const CHOICES: Record<string, Record<string, unknown>> = {
  'overlays/dev': { 'sample.enabled': true, 'controlPlane.replicas': 1 },
  'overlays/production': { 'redis.mode': 'sentinel', 'monitoring.scrape': true, 'monitoring.alerts': true },
  'verifier-per-node': { ...alone, 'verifier.node.enabled': true },
  'overlays/per-node': {
    ...alone,
    'redis.external.mode': 'sentinel',
    'redis.external.sentinelPassword': true,
    'redis.external.url': [0, 1, 2]
      .map((i) => `redis://keyfence-redis-${i}.keyfence-redis.keyfence:26379`)
      .join(),
    'redis.settings': { REDIS_REPLICAS: 2 },
    'verifier.node.enabled': true,
  },
  injection: { ...alone, 'verifier.injection.enabled': true },
};

describe.skipIf(why)(`the chart makes what kustomize makes${why}`, () => {
  it.each(Object.entries(CHOICES))('of %s', (folder, values) => {
    const wanted = likeness(render(join(KUBERNETES, folder)));
    const made = likeness(renderChart({ values }).filter((object) => !isHook(object)));
    // With kustomize what the verifiers read is yours to make; the chart knows.
    if (!(SETTINGS in wanted)) delete made[SETTINGS];
    expect(made).toEqual(wanted);
  });
});
