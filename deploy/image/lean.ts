import type { Plugin } from 'rolldown';

/** Modules of Node that are loaded at their first use, with the exports that are used. */
const AT_FIRST_USE: Readonly<Record<string, readonly string[]>> = {
  'node:https': ['createServer'],
  'node:tls': ['createServer', 'createSecureContext'],
  'node:v8': ['setFlagsFromString'],
  'node:vm': ['runInNewContext'],
};

/** Packages that a verifier uses only in part: a file, its text, and the text in the bundle. */
const PATCHES: readonly (readonly [file: RegExp, from: string, to: string])[] = [
  ...[
    /ioredis\/built\/connectors\/StandaloneConnector\.js$/,
    /ioredis\/built\/connectors\/SentinelConnector\/index\.js$/,
  ].map(
    (file) =>
      [
        file,
        'const tls_1 = require("tls");',
        'const tls_1 = { get connect() { return process.getBuiltinModule("tls").connect; } };',
      ] as const,
  ),
  // V8 13.6 copies a class for each method added to it, here 600, unless the class is a dictionary; that took
  // a tenth of the start.
  [
    /ioredis\/built\/utils\/Commander\.js$/,
    'commands.forEach(',
    'Commander.prototype.call = undefined; delete Commander.prototype.call; commands.forEach(',
  ],
  // The Cluster client: shared/redis/redis.ts has its own.
  [/ioredis\/built\/(?:index|Redis)\.js$/, 'cluster_1 = require("./cluster");', 'cluster_1 = {};'],
  // Colours for debug output, which is off.
  [
    /ioredis\/built\/utils\/debug\.js$/,
    'const debug_1 = require("debug");',
    'const debug_1 = { default: process.env.DEBUG ? require("debug") : () => Object.assign(() => {}, { enabled: false }) };',
  ],
  // Exemplars.
  [/prom-client\/lib\/metrics\/processCpuTotal\.js$/, "const OtelApi = require('@opentelemetry/api');", ''],
  [/prom-client\/index\.js$/, "exports.Pushgateway = require('./lib/pushgateway');", ''],
  // Two lists of CACHE_KEYS_MAX places, filled element by element, took a tenth of the start and 1.6 MB. They
  // grow as places are taken.
  [/lru-cache\/dist\/esm\/node\/index\.min\.js$/, 'Array.from({length:t}).fill(void 0)', '[]'],
  // Transports in threads.
  [
    /pino\/lib\/tools\.js$/,
    "const { isMainThread } = require('worker_threads')",
    'const isMainThread = true',
  ],
  [/pino\/lib\/transport\.js$/, "const ThreadStream = require('thread-stream')", ''],
];

/**
 * Leaves out of a verifier's start what it does not need, which saves a third of the time until it is ready.
 */
export function lean(): Plugin[] {
  return [leanNode(), leanPackages(PATCHES)];
}

/** Modules of Node that few commands of the command line need. */
const OF_SOME_COMMANDS = ['crypto', 'fs/promises', 'readline/promises', 'timers/promises', 'zlib'];

/** Loads modules of Node, and what starts subcommands in files of their own, at their first use. */
export function atFirstUse(): Plugin {
  return {
    name: 'at-first-use',
    resolveId(source, _importer, { kind }) {
      const isOne = OF_SOME_COMMANDS.some((name) => source === `node:${name}`);
      return isOne && kind === 'import-statement' ? `\0first:${source}` : null;
    },
    load(id) {
      const [, source] = /^\0first:(.*)$/.exec(id) ?? [];
      if (source === undefined) return null;
      const module = `process.getBuiltinModule('${source}')`;
      return Object.entries(process.getBuiltinModule(source) ?? {})
        .filter(([name]) => /^[a-z]/.test(name))
        .map(([name, value]) =>
          typeof value === 'function'
            ? `export const ${name} = (...of) => ${module}.${name}(...of);`
            : `export const ${name} = new Proxy({}, { get: (_, of) => ${module}.${name}[of] });`,
        )
        .join('\n');
    },
    transform: (code, id) =>
      /commander\/lib\/command\.js$/.test(id)
        ? code.replace("import childProcess from 'node:child_process';", 'const childProcess = undefined;')
        : null,
  };
}

/** Leaves out of the library's bundle the unused parts of small packages. */
export function leanLibrary(): Plugin {
  return leanPackages(PATCHES.filter(([file]) => /prom-client/.test(file.source)));
}

/** Loads modules of Node at their first use, and only the parts that are used. */
export function leanNode(): Plugin {
  return {
    name: 'lean-node',
    resolveId(source, _importer, { kind }) {
      const isLeaner = source === 'node:http' || source in AT_FIRST_USE;
      return isLeaner && kind === 'import-statement' ? `\0lean:${source}` : null;
    },
    load(id) {
      const [, source] = /^\0lean:(.*)$/.exec(id) ?? [];
      if (source === undefined) return null;
      const names = AT_FIRST_USE[source];
      // An `import` reads every export; here that would load a whole HTTP client for the export WebSocket.
      if (names === undefined)
        return `export const { createServer, ServerResponse, STATUS_CODES } = process.getBuiltinModule('${source}');`;
      return names
        .map(
          (name) => `export const ${name} = (...of) => process.getBuiltinModule('${source}').${name}(...of);`,
        )
        .join('\n');
    },
  };
}

function leanPackages(patches: typeof PATCHES): Plugin {
  const modules = new Set<string>();
  return {
    name: 'lean-packages',
    transform(code, id) {
      let text = code;
      for (const [file, from, to] of patches) {
        if (!file.test(id)) continue;
        if (!code.includes(from)) throw new Error(`${id}: does not say ${from}`);
        text = text.replaceAll(from, to);
        modules.add(`${file}`);
      }
      // Lines stay in place, so the previous map still holds.
      return text === code ? null : { code: text, map: null };
    },
    buildEnd() {
      const missing = patches.filter(([file]) => !modules.has(`${file}`));
      if (missing.length > 0)
        throw new Error(`not in the bundle: ${missing.map(([file]) => file).join(', ')}`);
    },
  };
}
