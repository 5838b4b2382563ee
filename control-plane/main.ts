import { systemClock } from '#shared/process/clock.ts';
import { exitUnfit, startOrExit } from '#shared/process/listening.ts';
import { loadConfigOrExit } from '#shared/process/load-config.ts';
import { createLogger } from '#shared/process/log.ts';
import { stopWithGrace } from '#shared/process/stopping.ts';
import { startControlPlane } from './app.ts';
import { configFaults, limits, settings } from './config.ts';

const config = { ...limits, ...loadConfigOrExit(settings, configFaults) };
const log = createLogger('control-plane', config.LOG_LEVEL);
const controlPlane = await startOrExit(startControlPlane(config, systemClock, log, exitUnfit));
stopWithGrace(controlPlane, config, log);
