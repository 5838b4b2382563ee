import { setFlagsFromString } from 'node:v8';
import closeWithGrace from 'close-with-grace';
import { systemClock } from '#shared/clock.ts';
import { loadConfigOrExit } from '#shared/process/config.ts';
import { startOrExit } from '#shared/process/listening.ts';
import { createLogger } from '#shared/process/log.ts';
import { startVerifier } from './app.ts';
import { configFaults, settings } from './config.ts';

const config = loadConfigOrExit(settings, configFaults);
const log = createLogger('verifier', config.LOG_LEVEL);
const verifier = await startOrExit(startVerifier(config, systemClock, log));
// After a quiet time V8's young generation is small. Doubled each time, as V8 does, it took 40 s of floods and more to be
// as large as before, with up to four times the scavenges (Node 24.21, `--trace-gc`). Not earlier: what survives the start
// would make it large for nothing.
setFlagsFromString('--semi-space-growth-factor=8');
const { DRAIN_MS, SHUTDOWN_GRACE_MS } = config;
closeWithGrace({ delay: DRAIN_MS + SHUTDOWN_GRACE_MS, logger: log }, async ({ signal, err }) => {
  if (err) log.fatal({ err }, 'stopping after an error that nobody handled');
  else log.info({ signal }, 'stopping');
  await verifier.stop(err ? 0 : DRAIN_MS);
});
