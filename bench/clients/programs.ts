import { execFile, spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import type { Program } from '../../test/harness/programs.ts';

/** The two kinds of requests that the fast lane answers. */
export type Endpoint = 'verifyKey' | 'authz';
export const ENDPOINTS: readonly Endpoint[] = ['verifyKey', 'authz'];

/** Requests that a client makes, one after the other. */
interface Task {
  readonly endpoint: Endpoint;
  /** Address of a verifier, as `http://host:port`. */
  readonly base: string;
  readonly key: string;
  readonly count: number;
  /** A temporary folder for the client's files. */
  readonly directory: string;
}

/** A client library as people use it, in a separate program. */
export interface Client {
  readonly name: string;
  /** The program or library that this machine lacks for the client; undefined = none. */
  missing(): Program | undefined;
  command(task: Task): readonly string[];
}

/** Makes a client send its requests; rejects if one was not answered 200. */
export async function run(client: Client, task: Task, env = ENVIRONMENT): Promise<void> {
  const [file = '', ...args] = client.command(task);
  await promisify(execFile)(file, args, { env, maxBuffer: 16_777_216 });
}

const source = (name: string) => join(import.meta.dirname, name);
/** The folder where `.ci/run` installs Python packages; other places on Python's path work too. */
const PYTHON_PACKAGES = join(import.meta.dirname, '..', '..', 'node_modules', '.python');
/** The environment in which clients run. A proxy that this machine has configured must not be used. */
export const ENVIRONMENT = {
  ...process.env,
  NO_PROXY: '*',
  no_proxy: '*',
  PYTHONPATH: [PYTHON_PACKAGES, process.env['PYTHONPATH']].filter(Boolean).join(':'),
  PYTHONDONTWRITEBYTECODE: '1',
};

/** The same for libraries of tokens and of MCP, whose dependencies are other versions. */
export const TOKEN_LIBRARIES = {
  ...ENVIRONMENT,
  PYTHONPATH: [`${PYTHON_PACKAGES}-tokens`, process.env['PYTHONPATH']].filter(Boolean).join(':'),
};

/** As `ENVIRONMENT`, where no speed is measured: Java starts quickly, without its second compiler and threads that collect. */
export const QUICKLY_STARTED = {
  ...ENVIRONMENT,
  JAVA_TOOL_OPTIONS: '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC',
};

const tried = new Map<string, boolean>();

/**
 * Returns `what` if a command cannot be run or fails. Several clients share a language, so each command is
 * tried once.
 */
function unlessRuns(what: Program, file: string, ...args: string[]): Program | undefined {
  const command = [file, ...args].join(' ');
  const runs =
    tried.get(command) ?? spawnSync(file, args, { env: ENVIRONMENT, stdio: 'ignore' }).status === 0;
  tried.set(command, runs);
  return runs ? undefined : what;
}

const PYTHON_LIBRARIES = ['requests', 'httpx', 'urllib3', 'http.client', 'aiohttp', 'pycurl'] as const;
type PythonLibrary = (typeof PYTHON_LIBRARIES)[number];
let importable: readonly string[] | undefined;
/** Returns those libraries that are installed here. */
function pythonLibraries(): readonly string[] {
  const lines = ['import importlib', `for name in '${PYTHON_LIBRARIES.join(' ')}'.split():`];
  const each = ['try: importlib.import_module(name); print(name)', 'except ImportError: pass'];
  importable ??=
    spawnSync('python3', ['-c', [...lines, ...each.map((line) => ` ${line}`)].join('\n')], {
      env: ENVIRONMENT,
      encoding: 'utf8',
    }).stdout?.split('\n') ?? [];
  return importable;
}
const python = (library: PythonLibrary): Client => ({
  name: `Python ${library}`,
  missing: () => (pythonLibraries().includes(library) ? undefined : `python3 ${library}`),
  command: ({ endpoint, base, key, count }) => [
    'python3',
    source('python_clients.py'),
    ...[library, endpoint, base, key, String(count)],
  ],
});

/**
 * Folders where `.ci/run` installs the libraries of bench/clients/java/pom.xml, and builds bench/clients/rust, whose
 * libraries take minutes: outside of a clone, for the next one.
 */
const JAVA_LIBRARIES = join(import.meta.dirname, '..', '..', 'node_modules', '.java');
const CACHE = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
const RUST_CLIENTS = join(CACHE, 'keyfence-clients', 'release', 'rust_clients');

const java = (client: string, program = 'JavaClients'): Client => ({
  name: `Java ${client}`,
  missing: () =>
    program === 'JavaLibraries' && !existsSync(JAVA_LIBRARIES)
      ? "Java's libraries"
      : unlessRuns('javac', 'javac', '-version'),
  command: ({ endpoint, base, key, count, directory }) => {
    const classes = ['-cp', [directory, join(JAVA_LIBRARIES, '*')].join(delimiter)];
    if (!existsSync(join(directory, `${program}.class`))) {
      // Compile both together, if both can be: starting the compiler takes the longest.
      const programs = existsSync(JAVA_LIBRARIES) ? ['JavaClients', 'JavaLibraries'] : ['JavaClients'];
      must('javac', ...classes, '-d', directory, ...programs.map((name) => source(`java/${name}.java`)));
    }
    return ['java', ...classes, program, client, endpoint, base, key, String(count)];
  },
});

const rust = (library: 'ureq' | 'reqwest'): Client => ({
  name: `Rust ${library}`,
  missing: () => (existsSync(RUST_CLIENTS) ? undefined : "Rust's libraries"),
  command: ({ endpoint, base, key, count }) => [RUST_CLIENTS, library, endpoint, base, key, String(count)],
});

const go: Client = {
  name: 'Go net/http',
  missing: () => unlessRuns('go', 'go', 'version'),
  command: ({ endpoint, base, key, count, directory }) => {
    const program = join(directory, 'go_client');
    if (!existsSync(program)) must('go', 'build', '-o', program, source('go_client.go'));
    return [program, endpoint, base, key, String(count)];
  },
};

const ruby: Client = {
  name: 'Ruby Net::HTTP',
  missing: () => unlessRuns('ruby', 'ruby', '--version'),
  command: ({ endpoint, base, key, count }) => [
    'ruby',
    source('ruby_client.rb'),
    ...[endpoint, base, key, String(count)],
  ],
};

const php = (client: 'streams' | 'curl'): Client => ({
  name: `PHP ${client}`,
  missing: () =>
    unlessRuns(client === 'curl' ? 'php-curl' : 'php', 'php', '-r', client === 'curl' ? 'curl_init();' : ''),
  command: ({ endpoint, base, key, count }) => [
    'php',
    source('php_clients.php'),
    ...[client, endpoint, base, key, String(count)],
  ],
});

const lwp = (manner: 'keep-alive' | 'close'): Client => ({
  name: `Perl LWP, ${manner}`,
  missing: () => unlessRuns('libwww-perl', 'perl', '-e', 'use LWP::UserAgent;'),
  command: ({ endpoint, base, key, count }) => [
    'perl',
    source('lwp_client.pl'),
    ...[manner, endpoint, base, key, String(count)],
  ],
});

const node = (client: 'fetch' | 'http'): Client => ({
  name: `Node.js ${client}`,
  missing: () => undefined,
  command: ({ endpoint, base, key, count }) => [
    process.execPath,
    source('node_clients.mjs'),
    ...[client, endpoint, base, key, String(count)],
  ],
});

/** Returns the request to send: URL, header line and body. */
function question({ endpoint, base, key }: Task): { url: string; header: string; body: string | undefined } {
  return endpoint === 'verifyKey'
    ? {
        url: `${base}/v1/keys.verifyKey`,
        header: 'Content-Type: application/json',
        body: JSON.stringify({ key }),
      }
    : { url: `${base}/authz/forward-auth`, header: `Authorization: Bearer ${key}`, body: undefined };
}

const curl: Client = {
  name: 'curl',
  missing: () => unlessRuns('curl', 'curl', '--version'),
  command: (task) => {
    const { url, header, body } = question(task);
    const config = join(task.directory, 'curl.txt');
    writeFileSync(config, `url = "${url}"\noutput = "/dev/null"\n`.repeat(task.count));
    return ['curl', '-sf', '-H', header, ...(body === undefined ? [] : ['-d', body]), '-K', config];
  },
};

const wget: Client = {
  name: 'wget',
  missing: () => unlessRuns('wget', 'wget', '--version'),
  command: (task) => {
    const { url, header, body } = question(task);
    const list = join(task.directory, 'wget.txt');
    writeFileSync(list, `${url}\n`.repeat(task.count));
    const post = body === undefined ? [] : ['--post-data', body];
    return ['wget', '-q', '-t', '1', '-O', '/dev/null', '--header', header, ...post, '-i', list];
  },
};

const ab = (...options: string[]): Client => ({
  name: ['ab', ...options].join(' '),
  missing: () => unlessRuns('ab', 'ab', '-V'),
  command: (task) => {
    const { url, header, body } = question(task);
    const file = join(task.directory, 'body.json');
    writeFileSync(file, body ?? '');
    const sent = body === undefined ? ['-H', header] : ['-p', file, '-T', 'application/json'];
    return ['ab', '-q', ...options, '-n', String(task.count), ...sent, url];
  },
});

function must(file: string, ...args: string[]): void {
  const { status, stderr } = spawnSync(file, args, { encoding: 'utf8', env: ENVIRONMENT });
  if (status !== 0) throw new Error(`${file}: ${stderr}`);
}

/** One client of each family. */
export const clients: readonly Client[] = [
  ...PYTHON_LIBRARIES.map(python),
  ...['HttpClient', 'HttpClient-1.1', 'HttpURLConnection'].map((client) => java(client)),
  java('OkHttp', 'JavaLibraries'),
  java('Apache', 'JavaLibraries'),
  rust('ureq'),
  rust('reqwest'),
  go,
  ruby,
  php('streams'),
  php('curl'),
  lwp('keep-alive'),
  lwp('close'),
  curl,
  wget,
  ab('-k'),
  ab(),
  node('fetch'),
  node('http'),
];
