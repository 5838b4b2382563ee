import {
  copyFileSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { Client, request } from 'undici';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '#shared/process/clock.ts';
import { configFaults } from '../../../../verifier/config.ts';
import { type Certificate, followCertificate } from '../../../../verifier/doors/http/tls.ts';
import { createClient } from '../../../../verifier/library/client.ts';
import { createVerifierServer, type VerifierServer } from '../../../../verifier/verifier-server.ts';
import { type MadeCertificate, makeCertificate } from '../../../harness/certificates.ts';
import { verifierConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { limits, ScriptedAnswers } from '../../../harness/scripted-answers.ts';
import { eventually, TEST_MS_MAX } from '../../../harness/waiting.ts';
import { verifyKey, Wire } from '../../../harness/wire.ts';

let directory: string;
let first: MadeCertificate;
let second: MadeCertificate;
let answers: ScriptedAnswers;
let certificate: Certificate | undefined;
let server: VerifierServer;
let address: string;
let logged: string[];
/** Number of looks at the files. */
let looks = 0;
const countingClock: Clock = {
  ...systemClock,
  after: (ms, work) =>
    systemClock.after(ms, () => {
      work();
      looks++;
    }),
};

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'keyfence-tls-'));
  [first, second] = [makeCertificate(directory, 'first'), makeCertificate(directory, 'second')];
  logged = [];
  answers = new ScriptedAnswers();
  const log = {
    info: (_: unknown, message?: string) => void logged.push(`info ${message}`),
    warn: (_: unknown, message?: string) => void logged.push(`warn ${message}`),
    error: (fields: unknown) => expect.fail(JSON.stringify(fields)),
  };
  certificate = followCertificate(
    { TLS_CERT_FILE: first.certFile, TLS_KEY_FILE: first.keyFile, TLS_CLIENT_CA_FILE: '' },
    countingClock,
    log,
  );
  server = createVerifierServer({ verifier: answers, limits, log, certificate });
  address = await server.listen('127.0.0.1', 0);
});
afterEach(async () => {
  answers.release();
  await server.close(0);
  certificate?.close();
  rmSync(directory, { recursive: true });
});

async function handshake(trusted: MadeCertificate): Promise<TLSSocket> {
  const socket = connect({ port: Number(new URL(address).port), host: '127.0.0.1', ca: trusted.cert });
  socket.on('error', () => socket.destroy());
  await new Promise((resolve, reject) => {
    socket.once('secureConnect', resolve).once('error', reject);
  });
  return socket;
}

/** Whose certificate a new connection is shown; it must be the one that is trusted. */
async function shown(trusted: MadeCertificate): Promise<string> {
  const socket = await handshake(trusted);
  const { CN } = socket.getPeerCertificate().subject;
  socket.destroy();
  return String(CN);
}

function ask(socket: TLSSocket): Promise<string> {
  socket.setEncoding('utf8').write(verifyKey({ key: 'good' }));
  return new Promise((resolve) => socket.once('data', (text: string) => resolve(text)));
}

function replace(from: MadeCertificate, file: 'certFile' | 'keyFile'): void {
  copyFileSync(from[file], `${first[file]}.new`);
  renameSync(`${first[file]}.new`, first[file]);
}

test('answers over TLS a client that knows its CA', async () => {
  expect(address).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  const client = new Client(address, { connect: { ca: first.cert } });
  const headers = { 'content-type': 'application/json' };
  const path = '/v1/keys.verifyKey';
  const answer = await client.request({ method: 'POST', path, headers, body: '{"key":"good"}' });
  expect(await answer.body.json()).toMatchObject({ valid: true, keyId: 'key_good' });
  await client.close();
  await expect(request(address)).rejects.toMatchObject({ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
});

describe('a certificate', () => {
  test('is replaced for new connections only', async () => {
    const open = await handshake(first);
    expect(await shown(first)).toBe('first');
    replace(second, 'keyFile');
    replace(second, 'certFile');
    await eventually(() => logged.includes('info the certificate was replaced'));
    expect(await shown(second)).toBe('second');
    expect(await ask(open)).toContain('"valid":true');
    open.destroy();
  });

  test('stays in use until the new key has come', async () => {
    replace(second, 'certFile');
    await eventually(() => logged.some((line) => line.startsWith('warn')));
    expect(await shown(first)).toBe('first');
    const before = looks;
    await eventually(() => looks > before + 1);
    expect(logged).toHaveLength(1);
    replace(second, 'keyFile');
    await eventually(() => logged.includes('info the certificate was replaced'));
    expect(await shown(second)).toBe('second');
  });

  test.each([
    ['TLS_CLIENT_CA_FILE', 0.5],
    ['TLS_CLIENT_CA_FILE', 1.5],
    ['TLS_CERT_FILE', 1.5],
  ] as const)('stays in use if a %s is cut (%d certificates)', async (name, written) => {
    const file = join(directory, 'chain.crt');
    const whole = first.cert + second.cert;
    writeFileSync(file, whole);
    const warned: string[] = [];
    const log = {
      info: () => undefined,
      warn: (_: unknown, message?: string) => void warned.push(`${message}`),
    };
    const files = { TLS_CERT_FILE: first.certFile, TLS_KEY_FILE: first.keyFile, TLS_CLIENT_CA_FILE: '' };
    const followed = followCertificate({ ...files, [name]: file }, systemClock, log);
    const used: (string | undefined)[] = [];
    followed?.follow(({ cert, ca }) => used.push(name === 'TLS_CERT_FILE' ? cert : ca));
    writeFileSync(file, whole.slice(0, (whole.length / 2) * written));
    await eventually(() => warned.length > 0);
    writeFileSync(file, first.cert);
    await eventually(() => used.length > 1);
    expect(used).toEqual([whole, first.cert]);
    followed?.close();
  });

  test('is replaced with its symbolic link', async () => {
    const link = join(directory, 'current');
    symlinkSync('first', link);
    const log = {
      info: (_: unknown, message?: string) => void logged.push(`${message}`),
      warn: () => undefined,
    };
    const files = {
      TLS_CERT_FILE: join(link, 'tls.crt'),
      TLS_KEY_FILE: join(link, 'tls.key'),
      TLS_CLIENT_CA_FILE: '',
    };
    const followed = followCertificate(files, systemClock, log);
    symlinkSync('second', `${link}.new`);
    renameSync(`${link}.new`, link);
    let current = '';
    followed?.follow(({ cert }) => {
      current = cert;
    });
    await eventually(() => current === second.cert);
    followed?.close();
  });
});

describe('a connection', () => {
  test('is closed if it speaks no TLS', async () => {
    const plain = new Wire(address.replace('https', 'http')).send(verifyKey({ key: 'good' }));
    await plain.rest();
    expect(answers.asked).toEqual([]);
    expect(await ask(await handshake(first))).toContain('"valid":true');
  });

  test('is cut if its handshake stalls', async () => {
    const log = { error: (fields: unknown) => expect.fail(JSON.stringify(fields)) };
    const brief = { ...limits, HEADERS_TIMEOUT_MS: 300 };
    const other = createVerifierServer({ verifier: answers, limits: brief, log, certificate });
    const { port } = new URL(await other.listen('127.0.0.1', 0));
    const silent = connectTcp(Number(port), '127.0.0.1').on('error', () => undefined);
    silent.resume();
    // Node's own limit is two minutes, longer than one wait.
    await eventually(() => silent.closed, 'it was not cut');
    await other.close(0);
  });

  test('is answered after a thousand handshakes', async () => {
    const log = { error: (fields: unknown) => expect.fail(JSON.stringify(fields)) };
    const wide = {
      ...limits,
      CONNECTIONS_MAX: 2000,
      HEADERS_TIMEOUT_MS: TEST_MS_MAX,
      REQUEST_TIMEOUT_MS: TEST_MS_MAX,
    };
    const other = createVerifierServer({ verifier: answers, limits: wide, log, certificate });
    address = await other.listen('127.0.0.1', 0);
    const open: TLSSocket[] = [];
    // More than 511 do not wait for a busy listener: the kernel resets some of them.
    for (let wave = 0; wave < 2; wave++)
      open.push(...(await Promise.all(Array.from({ length: 500 }, () => handshake(first)))));
    open.push(await handshake(first));
    for (const socket of [open[0], open[500], open[1000]])
      expect(socket && (await ask(socket))).toContain('"valid":true');
    for (const socket of open) socket.destroy();
    await other.close(0);
  });

  test('is cut in a handshake at the close', async () => {
    const silent = connectTcp(Number(new URL(address).port), '127.0.0.1').on('error', () => undefined);
    await new Promise((resolve) => silent.once('connect', resolve));
    const ended = new Promise((resolve) => silent.resume().once('close', resolve));
    await handshake(first);
    await server.close(0);
    await ended;
  });
});

test('finds wrong certificate files at the start', () => {
  const faults = (cert: string, key: string) =>
    configFaults(verifierConfig({ TLS_CERT_FILE: cert, TLS_KEY_FILE: key }));
  const garbage = join(directory, 'garbage');
  writeFileSync(garbage, 'not PEM');
  expect(faults(first.certFile, first.keyFile)).toEqual([]);
  expect(faults('', '')).toEqual([]);
  expect(faults(first.certFile, '')).toEqual([expect.stringContaining('set both or none')]);
  expect(faults(join(directory, 'none'), first.keyFile)).toEqual([expect.stringContaining('ENOENT')]);
  expect(faults(garbage, first.keyFile)).toHaveLength(1);
  expect(faults(first.certFile, second.keyFile)).toEqual([expect.stringMatching(/MISMATCH|mismatch/)]);
  const own = { TLS_CERT_FILE: first.certFile, TLS_KEY_FILE: first.keyFile };
  const authority = (file: string) => configFaults(verifierConfig({ ...own, TLS_CLIENT_CA_FILE: file }));
  expect(authority(second.certFile)).toEqual([]);
  expect(authority(garbage)).toEqual([expect.stringContaining('no certificate in')]);
  const alone = configFaults(verifierConfig({ TLS_CLIENT_CA_FILE: second.certFile }));
  expect(alone).toEqual(['TLS_CLIENT_CA_FILE: only with TLS_CERT_FILE']);
});

test('TLS_CLIENT_CA_FILE lets its own callers in', async () => {
  const third = makeCertificate(directory, 'third');
  const fleet = await Fleet.start({ verifiers: 0 });
  try {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const { address: url, proxyAddress = '' } = await fleet.addVerifier({
      UPSTREAM_URL: 'http://127.0.0.1:9',
      PROXY_PORT: '0',
      TLS_CERT_FILE: first.certFile,
      TLS_KEY_FILE: first.keyFile,
      TLS_CLIENT_CA_FILE: second.certFile,
      LOOKUP_WAIT_MS: '5000',
    });
    const clientWith = (own: MadeCertificate) =>
      createClient({ url, tlsCaFile: first.certFile, tlsCertFile: own.certFile, tlsKeyFile: own.keyFile });
    const callers = [createClient({ url, tlsCaFile: first.certFile }), clientWith(third), clientWith(second)];
    const [without, stranger, caller] = callers;
    await caller?.ready();
    expect(await caller?.verify(key)).toMatchObject({ code: 'VALID', keyId });
    for (const refused of [without, stranger])
      await expect(refused?.verify(key)).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    // Clients of the API need none: the request without a key is refused by the verifier itself.
    const api = new Client(proxyAddress, { connect: { ca: first.cert } });
    const open = await api.request({ method: 'GET', path: '/' });
    expect(open.statusCode).toBe(401);
    await open.body.dump();
    await api.close();
    // The authority is replaced while the verifier runs, and the client's certificate with it.
    copyFileSync(third.certFile, second.certFile);
    await eventually(async () => (await stranger?.verify(key).catch(() => undefined))?.code === 'VALID');
    copyFileSync(third.keyFile, second.keyFile);
    const renewed = clientWith(second);
    expect(await renewed.verify(key)).toMatchObject({ code: 'VALID' });
    await Promise.all([...callers, renewed].map((each) => each.close()));
  } finally {
    await fleet.stop();
  }
});

test.each(['TLSv1.2', 'TLSv1.3'] as const)(
  'shows its certificate with a session of %s',
  async (maxVersion) => {
    const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
    /** Connects a second time with the session of the first, and tells whether that was enough. */
    const isResumed = async (TLS_CLIENT_CA_FILE: string) => {
      const files = { TLS_CERT_FILE: first.certFile, TLS_KEY_FILE: first.keyFile, TLS_CLIENT_CA_FILE };
      const asking = followCertificate(files, systemClock, log);
      const other = createVerifierServer({ verifier: answers, limits, log, certificate: asking });
      const { port } = new URL(await other.listen('127.0.0.1', 0));
      const own = { cert: second.cert, key: readFileSync(second.keyFile) };
      const options = { port: Number(port), host: '127.0.0.1', ca: first.cert, ...own, maxVersion };
      const opening = connect(options);
      let session: Buffer | undefined;
      opening.on('session', (ticket: Buffer) => {
        session = ticket;
      });
      expect(await ask(opening)).toContain('"valid":true');
      opening.destroy();
      const again = connect({ ...options, ...(session ? { session } : {}) });
      expect(await ask(again)).toContain('"valid":true');
      const result = again.isSessionReused();
      again.destroy();
      await other.close(0);
      asking?.close();
      return result;
    };
    expect(await isResumed('')).toBe(true);
    expect(await isResumed(second.certFile)).toBe(false);
  },
);

test.each<[object, RegExp]>([
  [{ tlsCaFile: '/none' }, /tlsCaFile, tlsCertFile: only with a url that begins with https/],
  [{ url: 'https://127.0.0.1', tlsCaFile: '/none' }, /not certificates and their key \(ENOENT\)/],
  [{ url: 'https://127.0.0.1', tlsCertFile: '/none' }, /tlsCertFile, tlsKeyFile: set both or none/],
])('a client with wrong files is not created: %j', (options, message) => {
  expect(() => createClient({ url: 'http://127.0.0.1', ...options })).toThrow(message);
});

test('listens with TLS at a port, plain at a socket', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  try {
    const path = join(directory, 'verifier.sock');
    const env = { TLS_CERT_FILE: first.certFile, TLS_KEY_FILE: first.keyFile, LISTEN_UNIX: path };
    const verifier = await fleet.addVerifier(env);
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const client = new Client(verifier.address, { connect: { ca: first.cert } });
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ key });
    let code: string | undefined;
    while (code !== 'VALID') {
      const call = { method: 'POST', path: '/v1/keys.verifyKey', headers, body } as const;
      const answer = await client.request(call);
      code = ((await answer.body.json()) as { code?: string }).code;
    }
    // Every local user may: who can reach it is decided by its directory.
    expect(statSync(path).mode & 0o666).toBe(0o666);
    const local = new Wire(path).send(verifyKey({ key }));
    expect(JSON.parse((await local.response()).body)).toMatchObject({ code: 'VALID', apiId: 'shop' });
    local.close();
    await client.close();
    await verifier.stop();
    await expect(request(verifier.address)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect(() => statSync(path)).toThrow(/ENOENT/);
    fleet.verifiers.pop();
  } finally {
    await fleet.stop();
  }
});

test('checks the path of a Unix socket at the start', () => {
  for (const path of ['relative.sock', `/${'x'.repeat(107)}`]) {
    expect(() => verifierConfig({ LISTEN_UNIX: path })).toThrow(/LISTEN_UNIX/);
  }
  expect(verifierConfig({ LISTEN_UNIX: `/${'x'.repeat(106)}` }).LISTEN_UNIX).toHaveLength(107);
});
