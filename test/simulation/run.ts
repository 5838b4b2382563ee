import { parseArgs } from 'node:util';
import { Fence } from '../../control-plane/fence.ts';
import { Propagator } from '../../control-plane/propagation.ts';
import { Sweep } from '../../control-plane/sweep.ts';
import { Verifier } from '../../verifier/verifier.ts';
import { simulate } from './simulate.ts';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1000' },
    from: { type: 'string', default: '1' },
    seed: { type: 'string' },
  },
});

const modules = { Verifier, Fence, Propagator, Sweep };
if (values.seed) {
  const result = await simulate(Number(values.seed), modules, { keepTrace: true });
  console.log(result.trace.join('\n'));
  console.log({ ...result, trace: undefined });
} else {
  const started = performance.now();
  const totals: Record<string, number> = {};
  let failures = 0;
  for (let seed = Number(values.from); seed < Number(values.from) + Number(values.seeds); seed++) {
    const result = await simulate(seed, modules);
    await new Promise((resolve) => setImmediate(resolve));
    for (const [name, count] of Object.entries({
      ...result.counts,
      events: result.events,
      simulatedMs: result.simulatedMs,
    }))
      totals[name] = (totals[name] ?? 0) + count;
    if (result.violation) {
      failures++;
      console.log(seed, result.violation.message.slice(0, 300));
    }
  }
  console.log({ failures, ms: performance.now() - started, totals });
}
