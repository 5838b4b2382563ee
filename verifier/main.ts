import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { systemClock } from '#shared/process/clock.ts';
import { exitUnfit, startOrExit } from '#shared/process/listening.ts';
import { loadConfigOrExit } from '#shared/process/load-config.ts';
import { createLogger } from '#shared/process/log.ts';
import { stopWithGrace } from '#shared/process/stopping.ts';
import { startVerifier } from './app.ts';
import { configFaults, limits, settings } from './config.ts';

/** Time after which the process no longer counts as starting. */
const STARTED_MS = 1000;

const config = { ...limits, ...loadConfigOrExit(settings, configFaults) };
const log = createLogger('verifier', config.LOG_LEVEL);
const verifier = await startOrExit(startVerifier(config, systemClock, log, exitUnfit));
stopWithGrace(verifier, config, log);
// After a quiet time V8's young generation is small. By default V8 doubles it each time. Under a flood the
// generation then took more than 40 s to grow back, with up to four times the scavenges (Node 24.21,
// `--trace-gc`). The flag is not set earlier, because the objects that survive the start would then enlarge
// the generation needlessly.
systemClock.after(STARTED_MS, () => {
  if (verifier.verdictsGiven === 0) giveMemoryBack();
  setFlagsFromString('--semi-space-growth-factor=8');
});

/**
 * Returns to the system the memory that only the start needed, 11 of 76 MiB (Node 24.21). V8 itself does this
 * only when memory runs short. The collection blocks all answers for some 40 ms, so it runs only if nobody
 * has asked yet.
 */
function giveMemoryBack(): void {
  setFlagsFromString('--expose-gc');
  const collect: (mode: object) => void = runInNewContext('gc');
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}
