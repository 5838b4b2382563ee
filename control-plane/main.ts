import closeWithGrace from 'close-with-grace';
import { systemClock } from '#shared/clock.ts';
import { loadConfigOrExit } from '#shared/process/config.ts';
import { startOrExit } from '#shared/process/listening.ts';
import { createLogger } from '#shared/process/log.ts';
import { redisFaults } from '#shared/redis/redis-settings.ts';
import { startControlPlane } from './app.ts';
import { settings } from './config.ts';

const config = loadConfigOrExit(settings, redisFaults);
const log = createLogger('control-plane', config.LOG_LEVEL);
const controlPlane = await startOrExit(startControlPlane(config, systemClock, log));
const { DRAIN_MS, SHUTDOWN_GRACE_MS } = config;
closeWithGrace({ delay: DRAIN_MS + SHUTDOWN_GRACE_MS, logger: log }, async ({ signal, err }) => {
  if (err) log.fatal({ err }, 'stopping after an error that nobody handled');
  else log.info({ signal }, 'stopping');
  await controlPlane.stop(err ? 0 : DRAIN_MS);
});
