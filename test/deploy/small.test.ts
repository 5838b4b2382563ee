import { execFile, execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bareEnv } from '../harness/bare-machine.ts';
import { Fleet } from '../harness/fleet.ts';
import { freePort } from '../harness/ports.ts';
import { scratch } from '../harness/scratch.ts';
import { eventually } from '../harness/waiting.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(ROOT, 'deploy/small/README.md'), 'utf8');
const [START = '', BACK_UP = '', RESTORE = '', WAY_OUT = '', ...MORE] = [
  ...page.matchAll(/```sh\n([\s\S]*?)```/g),
].map(([, block = '']) => block);
const dockerfile = readFileSync(join(ROOT, 'deploy/small/Dockerfile'), 'utf8');

// biome-ignore lint/suspicious/noExplicitAny: answers of every operation
type Any = any;

/**
 * Takes the place of an engine, which does not run here: a container is a process in the folder of the image, with the variables of
 * its Dockerfile; its volume is $VOLUME. $SETTINGS are those of this test.
 */
const DOCKER = `#!/bin/sh -e
command=$1
shift
start() {
  (cd "$IMAGE" && exec env -i PATH="$PATH" $VARIABLES $SETTINGS setsid sh -c "exec $(cat "$STATE/$1.command")" >>"$STATE/log" 2>&1) &
  echo $! >"$STATE/$1.pid"
}
stop() {
  pid=$(cat "$STATE/$1.pid")
  # With its first process, a container loses all.
  [ "$2" = -TERM ] || exec kill "$2" -- "-$pid"
  kill "$2" "$pid" 2>/dev/null || return 0
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}
case $command in
  build) [ "$1" = -f ] && [ -f "$ROOT/$2" ] ;;
  run)
    while :; do
      case $1 in
        -d) shift ;;
        --name) name=$2; shift 2 ;;
        --restart | -v | -p) shift 2 ;;
        *) break ;;
      esac
    done
    [ "$1" = keyfence-small ]
    shift
    [ $# -gt 0 ] || set -- node small.ts
    echo "$@" >"$STATE/$name.command"
    start "$name"
    ;;
  exec)
    [ "$1" != -i ] || shift
    kill -0 "$(cat "$STATE/$1.pid")"
    shift
    cd "$IMAGE"
    exec env -i PATH="$PATH" $VARIABLES $SETTINGS $(echo "$@" | sed "s#/data#$VOLUME#")
    ;;
  stop) stop "$1" -TERM ;;
  restart) stop "$1" -TERM && start "$1" ;;
  kill) stop "$1" -KILL ;;
  rm) stop "$2" -TERM ;;
  cp) cp -r "$VOLUME/\${1#*:/data/}" "$2" ;;
  *) exit 1 ;;
esac
`;

describe('one container by deploy/small/README.md', () => {
  const folder = scratch('small');
  const [image, volume, state] = ['image', 'volume', 'state'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  let env: NodeJS.ProcessEnv;
  let ports: { readonly controlPlane: number; readonly verifier: number; readonly redis: number };
  let key = '';
  let keyId = '';

  beforeAll(async () => {
    for (const each of [image, volume, state]) mkdirSync(each);
    const quiet = { PATH: process.env['PATH'], NODE_OPTIONS: '--disable-warning=ExperimentalWarning' };
    execFileSync(process.execPath, ['deploy/image/build.ts', image], { cwd: ROOT, env: quiet });
    symlinkSync(join(ROOT, 'node_modules'), join(image, 'node_modules'));
    for (const [, from = '', to = ''] of dockerfile.matchAll(/^COPY (\S+) \/app\/(\S+)$/gm))
      cpSync(join(ROOT, from), join(image, to), { recursive: true });
    writeFileSync(join(folder, 'docker'), DOCKER, { mode: 0o755 });
    const [controlPlane = 0, verifier = 0, redis = 0, ...admin] = await Promise.all(
      Array.from({ length: 5 }, () => freePort()),
    );
    ports = { controlPlane, verifier, redis };
    const variables = [...dockerfile.matchAll(/([A-Z_]+)=\/data(\S*)/g)];
    env = bareEnv({
      ...{ ROOT, IMAGE: image, VOLUME: volume, STATE: state },
      VARIABLES: variables.map(([, name, path]) => `${name}=${volume}${path}`).join(' '),
      SETTINGS: [
        `CONTROL_PLANE_PORT=${controlPlane} VERIFIER_PORT=${verifier} REDIS_PORT=${redis}`,
        `CONTROL_PLANE_ADMIN_PORT=${admin[0]} VERIFIER_ADMIN_PORT=${admin[1]}`,
        'HOST=127.0.0.1 ADMIN_HOST=127.0.0.1 LOG_LEVEL=warn',
      ].join(' '),
    });
    env['PATH'] = `${folder}:${join(ROOT, 'node_modules/.bin')}:${env['PATH']}`;
  });
  afterAll(async () => {
    for (const file of readdirSync(state).filter((name) => name.endsWith('.pid')))
      await run(`docker stop ${file.replace('.pid', '')}`);
    rmSync(folder, { recursive: true, force: true });
  });

  const run = async (commands: string, more: NodeJS.ProcessEnv = {}) => {
    const own = commands
      .replaceAll(/127\.0\.0\.1:3000\/v1/g, `127.0.0.1:${ports.controlPlane}/v1`)
      .replaceAll('sleep 1;', 'sleep 0.2;');
    const options = { cwd: folder, env: { ...env, ...more } };
    return (await promisify(execFile)('sh', ['-ec', own], options)).stdout;
  };
  const post = async (port: number, operation: string, body: object) => {
    const rootKey = readFileSync(join(volume, 'secrets/root-key'), 'utf8').trim();
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${rootKey}` };
    const request = { method: 'POST', headers, body: JSON.stringify(body) };
    return (await fetch(`http://127.0.0.1:${port}/v1/${operation}`, request))
      .json()
      .catch(() => ({})) as Promise<Any>;
  };
  const code = async () =>
    (await post(ports.verifier, 'keys.verifyKey', { key }).catch(() => ({ code: '' }))).code;
  const until = (expected: string) => eventually(async () => (await code()) === expected, `is ${expected}`);
  const enable = (enabled: boolean) => post(ports.controlPlane, 'keys.updateKey', { keyId, enabled });
  const newest = (of: string) => join(of, readdirSync(of).sort().at(-1) ?? '');

  it('starts by the commands of the page, and is durable', async () => {
    expect(MORE).toEqual([]);
    ({ key, keyId } = JSON.parse(await run(START)));
    await until('VALID');
    expect((await enable(false)).propagation).toMatchObject({ state: 'complete', durable: true });
    await run('docker kill keyfence');
    await eventually(async () => (await code()) === '', 'its processes ended');
    await run('docker restart keyfence');
    await until('DISABLED');
    await eventually(async () => (await enable(true)).propagation?.durable === true, 'it is enabled again');
  });

  it('refuses a Redis of another, and a port of one', async () => {
    await expect(
      promisify(execFile)('node', ['small.ts'], {
        ...{ cwd: image, env: { PATH: env['PATH'], REDIS_URL: 'redis://127.0.0.1', PORT: '1' } },
      }),
    ).rejects.toThrow('REDIS_URL, PORT: this image has its own Redis and ports');
  });

  it('is restored, and lets nobody in before it may', async () => {
    await run(BACK_UP);
    const copies = join(folder, 'backups');
    await enable(false);
    const [restore = '', admit = ''] = RESTORE.split(/(?<=done\n)/);
    await run(restore, { COPY: newest(copies) });
    await eventually(async () => (await enable(false)).propagation !== undefined, 'it is disabled again');
    await eventually(async () => ['', undefined].includes(await code()), 'the verifier decides nothing');
    await post(ports.controlPlane, 'fleet.acceptHistory', {});
    expect(await code()).not.toBe('VALID');
    await run(admit);
    await until('DISABLED');
  });

  it('moves to a Redis elsewhere with all that it has', async () => {
    await run(WAY_OUT);
    const [port, DATA] = [await freePort(), join(folder, 'elsewhere')];
    mkdirSync(DATA);
    const there = { DATA, SECRETS: join(volume, 'secrets'), REDIS_PORT: `${port}` };
    await run(`sh ${ROOT}/deploy/redis/restore.sh <"$COPY"`, {
      ...{ ...there, COPY: newest(join(folder, 'backups')) },
    });
    writeFileSync(join(state, 'elsewhere.command'), `sh ${ROOT}/deploy/redis/start.sh`);
    env['SETTINGS'] = Object.entries(there)
      .map((each) => each.join('='))
      .join(' ');
    await run('docker restart elsewhere || true');
    const user = {
      REDIS_USERNAME: 'control-plane',
      REDIS_PASSWORD_FILE: join(there.SECRETS, 'control-plane-password'),
    };
    const fleet = await Fleet.start({ redisUrl: `redis://127.0.0.1:${port}`, verifiers: 0, env: user });
    try {
      await fleet.until(async () => (await fleet.admin('apis.listApis')).status === 200);
      expect((await fleet.ok('keys.getKey', { keyId })).enabled).toBe(false);
      expect(existsSync(join(volume, 'history'))).toBe(true);
    } finally {
      await fleet.stop();
    }
  });
});
