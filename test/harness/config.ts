import {
  limits as controlPlaneLimits,
  settings as controlPlaneSettings,
} from '../../control-plane/config.ts';
import { type ConfigOf, loadConfig, type Settings } from '../../shared/process/load-config.ts';
import { redisLimits, redisSettings } from '../../shared/redis/redis-settings.ts';
import { limits as verifierLimits, settings as verifierSettings } from '../../verifier/config.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** A configuration as `main.ts` loads it, for which `env` may also replace limits. */
function configWith<S extends Settings, L extends Readonly<Record<string, number>>>(
  settings: S,
  limits: L,
  env: Env,
): ConfigOf<S> & L {
  const replaced = Object.keys(limits).flatMap((name) => (env[name] ? [[name, Number(env[name])]] : []));
  return { ...limits, ...loadConfig(settings, env), ...Object.fromEntries(replaced) };
}

export const controlPlaneConfig = (env: Env) => configWith(controlPlaneSettings, controlPlaneLimits, env);
export const verifierConfig = (env: Env) => configWith(verifierSettings, verifierLimits, env);
export const redisConfig = (env: Env) => configWith(redisSettings, redisLimits, env);
