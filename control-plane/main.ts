import { systemClock } from '#shared/lang/clock.ts';
import { startOrExit } from '#shared/process/listening.ts';
import { deprecations, loadConfigOrExit } from '#shared/process/load-config.ts';
import { createLogger } from '#shared/process/log.ts';
import { stopWithGrace } from '#shared/process/stopping.ts';
import { startControlPlane } from './app.ts';
import { configFaults, settings } from './config.ts';

const config = loadConfigOrExit(settings, configFaults);
const log = createLogger('control-plane', config.LOG_LEVEL);
for (const sentence of deprecations(settings)) log.warn(sentence);
const controlPlane = await startOrExit(startControlPlane(config, systemClock, log));
stopWithGrace(controlPlane, config, log);
