import { holdProcess, systemClock } from '#shared/process/clock.ts';
import { startOrExit } from '#shared/process/listening.ts';
import { loadConfigOrExit } from '#shared/process/load-config.ts';
import { createLogger } from '#shared/process/log.ts';
import { stopWithGrace } from '#shared/process/stopping.ts';
import { startOperator } from './app.ts';
import { configFaults, limits, settings } from './config.ts';

const { readSecretsAgain, ...loaded } = loadConfigOrExit(settings, configFaults);
const readRootKey = () => readSecretsAgain().ROOT_KEY ?? loaded.ROOT_KEY;
const config = { ...limits, ...loaded, readRootKey };
const log = createLogger('operator', config.LOG_LEVEL);
// Between watches, only timers run.
const held = holdProcess();
const operator = await startOrExit(startOperator(config, systemClock, log));
stopWithGrace(
  {
    async stop() {
      await operator.stop();
      held.cancel();
    },
  },
  config,
  log,
);
