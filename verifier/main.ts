import { setFlagsFromString } from 'node:v8';
import { systemClock } from '#shared/clock.ts';
import { loadConfigOrExit } from '#shared/process/config.ts';
import { startOrExit } from '#shared/process/listening.ts';
import { createLogger } from '#shared/process/log.ts';
import { stopWithGrace } from '#shared/process/stopping.ts';
import { startVerifier } from './app.ts';
import { configFaults, settings } from './config.ts';

const config = loadConfigOrExit(settings, configFaults);
const log = createLogger('verifier', config.LOG_LEVEL);
const verifier = await startOrExit(startVerifier(config, systemClock, log));
// After a quiet time V8's young generation is small. Doubled each time, as V8 does, it took 40 s of floods and more to be
// as large as before, with up to four times the scavenges (Node 24.21, `--trace-gc`). Not earlier: what survives the start
// would make it large for nothing.
setFlagsFromString('--semi-space-growth-factor=8');
stopWithGrace(verifier, config, log);
