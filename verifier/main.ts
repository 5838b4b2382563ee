import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { systemClock } from '#shared/lang/clock.ts';
import { startOrExit } from '#shared/process/listening.ts';
import { deprecations, loadConfigOrExit } from '#shared/process/load-config.ts';
import { createLogger } from '#shared/process/log.ts';
import { stopWithGrace } from '#shared/process/stopping.ts';
import { startVerifier } from './app.ts';
import { configFaults, settings } from './config.ts';

/** Time after which the start is over. */
const STARTED_MS = 1000;

const config = loadConfigOrExit(settings, configFaults);
const log = createLogger('verifier', config.LOG_LEVEL);
for (const sentence of deprecations(settings)) log.warn(sentence);
const verifier = await startOrExit(startVerifier(config, systemClock, log));
// After a quiet time V8's young generation is small. Doubled each time, as V8 does, it took 40 s of floods and more to be
// as large as before, with up to four times the scavenges (Node 24.21, `--trace-gc`). Not earlier: what survives the start
// would make it large for nothing.
systemClock.after(STARTED_MS, () => {
  if (verifier.verdictsGiven === 0) giveMemoryBack();
  setFlagsFromString('--semi-space-growth-factor=8');
});
stopWithGrace(verifier, config, log);

/**
 * Gives the system back what the start took and nothing needs any more, 11 of 76 MiB (Node 24.21). V8 does so by itself only where
 * memory runs short. It takes some 40 ms, in which nobody is answered: so only where nobody has asked yet.
 */
function giveMemoryBack(): void {
  setFlagsFromString('--expose-gc');
  const collect: (mode: object) => void = runInNewContext('gc');
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}
