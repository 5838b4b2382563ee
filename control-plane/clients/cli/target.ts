import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadFromEnvironment } from '#shared/process/load-config.ts';
import { type Context, Contexts } from './contexts.ts';
import { CliError } from './exit.ts';
import { settings } from './settings.ts';

/** Addresses and a root key, all of one source, so that no secret goes to a server of another. */
export interface Target {
  readonly from: 'the environment' | 'a context' | 'npm start';
  /** Name of the context. */
  readonly name?: string;
  readonly url: URL | undefined;
  readonly verifierUrl: URL | undefined;
  /** '' = the source has none. */
  readonly rootKey: string;
  /** URL of the private Redis of `npm start`. */
  readonly redisUrl?: string | undefined;
}

/** The note that `npm start` keeps in its folder while it runs. */
interface Running {
  readonly controlPlane: string;
  readonly verifier: string;
  readonly redisUrl?: string;
}

/** The folder in which `npm start` keeps its data unless KEYFENCE_DATA names another. */
const FOLDER = join(import.meta.dirname, '..', '..', '..', '.keyfence');

/** The contexts of this user. */
export const contextsHere = (): Contexts =>
  new Contexts(loadFromEnvironment({ XDG_CONFIG_HOME: settings.XDG_CONFIG_HOME }).XDG_CONFIG_HOME);

/** Returns the source of a target, as messages name it. */
export const sourceOf = ({ from, name }: Target): string =>
  name === undefined ? from : `the context ${name}`;

/** Returns where commands go: the environment comes first, then the chosen context, then `npm start`. */
export const readTarget = async (): Promise<Target | undefined> =>
  targetOfEnvironment() ?? targetOfContext() ?? (await targetOfStart());

export function targetOfEnvironment(): Target | undefined {
  const { KEYFENCE_URL, KEYFENCE_VERIFIER_URL, KEYFENCE_ROOT_KEY } = settings;
  const env = loadFromEnvironment({ KEYFENCE_URL, KEYFENCE_VERIFIER_URL, KEYFENCE_ROOT_KEY });
  const { KEYFENCE_URL: url, KEYFENCE_VERIFIER_URL: verifierUrl, KEYFENCE_ROOT_KEY: rootKey } = env;
  if (!url && !verifierUrl && !rootKey) return undefined;
  return { from: 'the environment', url, verifierUrl, rootKey };
}

function targetOfContext(): Target | undefined {
  const { current = '', contexts } = contextsHere().read();
  const context: Context | undefined = Object.hasOwn(contexts, current) ? contexts[current] : undefined;
  if (context === undefined) return undefined;
  const { url, verifierUrl, rootKey } = context;
  return {
    ...{ from: 'a context', name: current, url: new URL(url), rootKey },
    verifierUrl: verifierUrl === undefined ? undefined : new URL(verifierUrl),
  };
}

/** Returns the running `npm start` of this machine, as its folder describes it; undefined = none is known. */
export async function targetOfStart(): Promise<Target | undefined> {
  const { KEYFENCE_DATA } = loadFromEnvironment({ KEYFENCE_DATA: settings.KEYFENCE_DATA });
  const folder = KEYFENCE_DATA || FOLDER;
  let note: Running;
  try {
    note = JSON.parse(readFileSync(join(folder, 'running.json'), 'utf8')) as Running;
  } catch {
    return undefined; // it does not run, or not with this folder
  }
  if (!(await isLocked(join(folder, 'lock')))) return undefined;
  const { KEYFENCE_URL, KEYFENCE_VERIFIER_URL, KEYFENCE_ROOT_KEY } = settings;
  const file = join(folder, 'root-key');
  return {
    ...{ from: 'npm start', redisUrl: note.redisUrl },
    url: KEYFENCE_URL.parse(note.controlPlane),
    verifierUrl: KEYFENCE_VERIFIER_URL.parse(note.verifier),
    rootKey: existsSync(file) ? KEYFENCE_ROOT_KEY.parse(readFileSync(file, 'utf8')) : '',
  };
}

/**
 * Tells whether a process holds the lock of the folder. The note outlives a killed process, and whoever has its port by
 * then must get no root key; its pid may be that of another process.
 */
async function isLocked(file: string): Promise<boolean> {
  if (!existsSync(file)) return false;
  const { DatabaseSync } = await import('node:sqlite');
  const lock = new DatabaseSync(file, { readOnly: true });
  try {
    lock.exec('SELECT 1 FROM sqlite_schema');
    return false;
  } catch (error) {
    return (error as Error).message.includes('locked');
  } finally {
    lock.close();
  }
}

/** The nouns for what a setting of a target gives. */
const NOUNS = {
  KEYFENCE_URL: 'control plane',
  KEYFENCE_VERIFIER_URL: 'verifier',
  KEYFENCE_ROOT_KEY_FILE: 'root key',
};

/** Returns the error for what a target lacks, by the variable that would give it. */
export async function lacking(target: Target | undefined, setting: keyof typeof NOUNS): Promise<CliError> {
  const fail = (advice: string) => {
    const exit = target && setting !== 'KEYFENCE_ROOT_KEY_FILE' ? 'CONFIG' : 'NOT_PERMITTED';
    return new CliError(exit, `no ${NOUNS[setting]}: ${advice}`);
  };
  const url = target?.url?.href ?? '<url>';
  if (target === undefined)
    return fail(
      'npm start is not running here, and no other address is known: run keyfence login <url>, or set KEYFENCE_URL and KEYFENCE_ROOT_KEY_FILE',
    );
  if (target.from === 'npm start') return fail(`set KEYFENCE_URL=${url} and KEYFENCE_ROOT_KEY_FILE`);
  if (target.from === 'a context')
    return fail(`run keyfence login ${url} --name ${target.name} --verifier <url>`);
  const set = [
    ...(target.url ? ['KEYFENCE_URL'] : []),
    ...(target.verifierUrl ? ['KEYFENCE_VERIFIER_URL'] : []),
    ...(target.rootKey ? ['KEYFENCE_ROOT_KEY'] : []),
  ].join(' and ');
  const other = targetOfContext() ?? (await targetOfStart());
  const instead = other ? `, or unset ${set} to use ${sourceOf(other)} (${other.url?.origin})` : '';
  return fail(
    `the environment has only ${set}, and addresses and root key must have one source: set ${setting} too${instead}`,
  );
}
