import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** Facts that a running `npm start` writes into its folder. */
export interface Running {
  readonly pid: number;
  readonly controlPlane: string;
  readonly verifier: string;
  /** URL of its private Redis. */
  readonly redisUrl?: string;
}

const POLL_MS = 100;
const LOOK_MS_MAX = 200;
/** Time after which no process of a killed `npm start` runs any more. */
const LEFTOVERS_END_MS_MAX = 20_000;

/**
 * Takes the folder for this process. It uses a file lock of the operating system, through SQLite because Node
 * has none; the lock ends with the process, however that ends. Throws if another process has the lock.
 * @returns the note of the previous process, if that was killed before it could remove the note
 */
export function takeFolder(directory: string): Running | undefined {
  // The command line may look at the lock at this moment.
  const lock = new DatabaseSync(join(directory, 'lock'), { timeout: LOOK_MS_MAX });
  try {
    lock.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE');
  } catch (error) {
    if (!(error as Error).message.includes('locked')) throw error;
    const { pid, controlPlane, verifier } = running(directory) ?? {};
    const holder = controlPlane ? ` (process ${pid}, at ${controlPlane} and ${verifier})` : '';
    throw new Error(
      `another npm start${holder} keeps its keys in ${directory}, and was left alone. Use that one; or stop it first, by Ctrl-C there; or give this one a folder and ports of its own: KEYFENCE_DATA, CONTROL_PLANE_PORT, CONTROL_PLANE_ADMIN_PORT, VERIFIER_PORT, VERIFIER_ADMIN_PORT`,
    );
  }
  locks.add(lock);
  return running(directory);
}

/** A lock ends when it is garbage-collected, so keep it. */
const locks = new Set<DatabaseSync>();

/**
 * Writes what runs in the folder, for a second `npm start` and for the doctor; undefined = nothing runs any
 * more.
 */
export function tell(directory: string, note: Running | undefined): void {
  if (note === undefined) rmSync(fileIn(directory), { force: true });
  else writeFileSync(fileIn(directory), `${JSON.stringify(note)}\n`, { mode: 0o600 });
}

function running(directory: string): Running | undefined {
  try {
    return JSON.parse(readFileSync(fileIn(directory), 'utf8')) as Running;
  } catch {
    return undefined; // no note, or its writer was killed
  }
}

const fileIn = (directory: string) => join(directory, 'running.json');

/**
 * Resolves when the ports and the socket are free. Waits for processes that a killed `npm start` left behind;
 * rejects immediately if anything else uses a port.
 * @param ports the ports by the settings that chose them
 */
export async function untilFree(
  ports: Readonly<Record<string, number>>,
  leftover: Running | undefined,
): Promise<void> {
  const socket = leftover?.redisUrl?.replace('unix://', '');
  const giveUpAtMs = performance.now() + (leftover ? LEFTOVERS_END_MS_MAX : 0);
  let isReported = leftover === undefined;
  for (;;) {
    const portsInUseNow = await portsInUse(ports);
    const redis = socket !== undefined && (await isAnswered(socket));
    if (portsInUseNow.length === 0 && !redis) return;
    if (performance.now() > giveUpAtMs) throw new Error(advice(ports, portsInUseNow, leftover, redis));
    if (!isReported)
      console.error('An earlier npm start was killed; waiting until what it left behind has ended.');
    isReported = true;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function advice(
  ports: Readonly<Record<string, number>>,
  settings: readonly string[],
  leftover: Running | undefined,
  redis: boolean,
): string {
  if (redis) {
    return `the Redis of an earlier npm start (process ${leftover?.pid}), which was killed, still runs at ${leftover?.redisUrl}: stop it by redis-cli -s ${leftover?.redisUrl?.replace('unix://', '')} SHUTDOWN`;
  }
  const places = settings.map((name) => `${ports[name]} (${name})`).join(', ');
  return `in use on 127.0.0.1: port ${places}. Stop what listens there, or choose others: ${settings.map((name) => `${name}=${(ports[name] ?? 0) + 100}`).join(' ')} npm start`;
}

async function portsInUse(ports: Readonly<Record<string, number>>): Promise<string[]> {
  const names = await Promise.all(
    Object.entries(ports).map(async ([name, port]) => ((await isFree(port)) ? [] : [name])),
  );
  return names.flat();
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

/** Tells whether a process listens on the Unix socket at `path`. */
export function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', () => resolve(false));
  });
}
