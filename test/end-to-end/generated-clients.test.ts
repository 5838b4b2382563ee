import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, test } from 'vitest';
import { Fleet } from '../harness/fleet.ts';
import { skippedWithout } from '../harness/programs.ts';
import { scratch } from '../harness/scratch.ts';

/** Generates clients from the three documents and compiles them: TEST_GENERATED=1, ten minutes and the network. */
const VERSION = '7.17.0';
const GENERATOR = `org.openapitools:openapi-generator-cli:${VERSION}`;
const JAR = join(
  homedir(),
  `.m2/repository/org/openapitools/openapi-generator-cli/${VERSION}/openapi-generator-cli-${VERSION}.jar`,
);
const MINUTES_MAX = 10;
const asked =
  process.env['TEST_GENERATED'] === '1'
    ? ''
    : ' (skipped: takes minutes and the network; set TEST_GENERATED=1)';

/** How each language is generated and compiled. C# and Kotlin have no compiler among Debian's packages: set PATH. */
const LANGUAGES = {
  java: {
    tools: ['javac'],
    options: ['--additional-properties=library=native,openApiNullable=false,supportUrlQuery=false'],
    compile: [['mvn', '-q', '-B', 'compile', '-Dmaven.test.skip']],
  },
  go: {
    tools: ['go'],
    options: ['--additional-properties=withGoMod=true'],
    compile: [
      ['rm', '-r', 'test'],
      ['go', 'mod', 'tidy'],
      ['go', 'build', './...'],
    ],
  },
  csharp: {
    tools: ['dotnet'],
    options: [],
    compile: [['dotnet', 'build', '--nologo', '-v', 'q']],
  },
  kotlin: {
    tools: ['gradle'],
    options: ['--additional-properties=omitGradleWrapper=true'],
    compile: [['gradle', '-q', 'compileKotlin']],
  },
  python: {
    tools: ['python3'],
    options: [],
    compile: [['python3', '-m', 'compileall', '-q', '.']],
  },
  'typescript-fetch': {
    tools: [],
    options: [],
    compile: [
      [
        ...[
          join(import.meta.dirname, '../../node_modules/.bin/tsc'),
          '--noEmit',
          '--strict',
          '--skipLibCheck',
        ],
        ...[
          '--target',
          'es2022',
          '--module',
          'esnext',
          '--moduleResolution',
          'bundler',
          '--lib',
          'es2022,dom',
        ],
        'index.ts',
      ],
    ],
  },
} as const;

describe.skipIf(asked)(`clients generated from the documents compile${asked}`, () => {
  const directory = scratch('clients');
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await Fleet.start({ verifiers: 0 });
    const base = fleet.controlPlanes[0]?.address ?? '';
    const documents = {
      v1: (await fleet.get(`${base}/openapi.json`)).body as object,
      v2: (await fleet.get(`${base}/openapi-v2.json`)).body as object,
      verifier: JSON.parse(readFileSync('verifier/openapi.json', 'utf8')) as object,
    };
    for (const [name, document] of Object.entries(documents)) {
      writeFileSync(join(directory, `${name}.json`), JSON.stringify(document));
      // The generator for Python writes no types into the parameters of webhooks.
      writeFileSync(
        join(directory, `${name}-python.json`),
        JSON.stringify({ ...document, webhooks: undefined }),
      );
    }
  });
  afterAll(() => fleet.stop());

  for (const [language, { tools, options, compile }] of Object.entries(LANGUAGES)) {
    const why = skippedWithout('java', 'mvn', ...tools);
    test.skipIf(why).each(['v1', 'v2', 'verifier'])(
      `${language} from %s${why}`,
      (name) => {
        execFileSync('mvn', ['-q', '-B', 'dependency:get', `-Dartifact=${GENERATOR}`], { stdio: 'pipe' });
        const cwd = join(directory, `${language}-${name}`);
        mkdirSync(cwd);
        const document = join(directory, `${name}${language === 'python' ? '-python' : ''}.json`);
        const generate = ['-Dlog.level=error', '-jar', JAR, 'generate', '--skip-validate-spec'];
        execFileSync('java', [...generate, '-i', document, '-g', language, '-o', cwd, ...options], {
          stdio: 'pipe',
        });
        for (const [command = '', ...args] of compile) execFileSync(command, args, { cwd, stdio: 'pipe' });
      },
      MINUTES_MAX * 60_000,
    );
  }
});
