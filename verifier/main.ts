import closeWithGrace from 'close-with-grace';
import { systemClock } from '#shared/clock.ts';
import { loadConfigOrExit } from '#shared/config.ts';
import { createLogger } from '#shared/log.ts';
import { startVerifier } from './app.ts';
import { configFaults, settings } from './config.ts';

const config = loadConfigOrExit(settings, configFaults);
const log = createLogger('verifier', config.LOG_LEVEL);
const verifier = await startVerifier(config, systemClock, log);
const { DRAIN_MS, SHUTDOWN_GRACE_MS } = config;
closeWithGrace({ delay: DRAIN_MS + SHUTDOWN_GRACE_MS, logger: log }, async ({ signal, err }) => {
  if (err) log.fatal({ err }, 'stopping after an error that nobody handled');
  else log.info({ signal }, 'stopping');
  await verifier.stop(err ? 0 : DRAIN_MS);
});
