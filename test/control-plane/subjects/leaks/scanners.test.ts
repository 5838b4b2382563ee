import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { builtPath, GITLEAKS } from '../../../../deploy/dev/go-tools.ts';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { lacking, type Program, skippedWithout } from '../../../harness/programs.ts';
import { scratch } from '../../../harness/scratch.ts';

/** The rules that deploy/scanners ships, tried by the scanners themselves where they are. */
const SCANNERS = join(import.meta.dirname, '..', '..', '..', '..', 'deploy', 'scanners');
const fileOf = (name: string) => join(SCANNERS, name);

const gitleaks = [builtPath(GITLEAKS), 'gitleaks'].find(
  // Old releases have no such command.
  (command) => spawnSync(command, ['dir', '--help']).status === 0,
);
const trufflehog = ['trufflehog'].find((command) => spawnSync(command, ['--help']).status === 0);
const without = (program: Program, command: string | undefined) => lacking(command ? [] : [program]);

const keys = Array.from({ length: 300 }, () => generateKey(16, 'shop'));
const rootKeys = Array.from({ length: 100 }, () => generateKey(24, 'kfroot'));
/** What looks nearly like one. */
const OTHERS = [
  `myshop_${'a1B2'.repeat(7)}`,
  `shop_${'x'.repeat(28)}`,
  'shop_0123456789ABCDEFabcdef0123',
  `shop_${'0aZ9'.repeat(20)}`,
  'kfroot_example',
];

/** A folder with secrets as people leave them lying about. */
function folder(): string {
  const home = scratch('leaked');
  mkdirSync(join(home, 'src'));
  const lines = [...keys.map((key, i) => `const key${i} = "${key}";`), ...OTHERS.map((each) => `// ${each}`)];
  writeFileSync(join(home, 'src', 'client.ts'), lines.join('\n'));
  writeFileSync(join(home, '.env'), rootKeys.map((key, i) => `KEYFENCE_ROOT_KEY_${i}=${key}`).join('\n'));
  return home;
}

const sorted = (texts: Iterable<string>) => [...new Set(texts)].sort();

test.skipIf(!gitleaks)(
  `gitleaks finds every key and root key, and nothing else${without('gitleaks', gitleaks)}`,
  () => {
    const home = folder();
    const report = join(scratch('report'), 'report.json');
    const args = [
      'dir',
      '--config',
      fileOf('gitleaks.toml'),
      '--report-path',
      report,
      '--report-format',
      'json',
    ];
    // Status 1: leaks.
    expect(spawnSync(gitleaks ?? '', [...args, '--no-banner', home]).status).toBe(1);
    const found = JSON.parse(readFileSync(report, 'utf8')) as { RuleID: string; Secret: string }[];
    const of = (rule: string) =>
      sorted(found.filter(({ RuleID }) => RuleID === rule).map(({ Secret }) => Secret));
    expect(of('keyfence-key')).toEqual(sorted(keys));
    expect(of('keyfence-root-key')).toEqual(sorted(rootKeys));
    expect(found).toHaveLength(keys.length + rootKeys.length);
  },
);

test.skipIf(!trufflehog)(
  `TruffleHog finds every key and root key${without('trufflehog', trufflehog)}`,
  () => {
    const args = [
      'filesystem',
      '--no-update',
      '--no-verification',
      '--json',
      '--config',
      fileOf('trufflehog.yaml'),
    ];
    const output = execFileSync(trufflehog ?? '', [...args, folder()], { encoding: 'utf8', stdio: 'pipe' });
    const found = output
      .split('\n')
      .filter(Boolean)
      .map((line) => (JSON.parse(line) as { Raw: string }).Raw);
    for (const secret of [...keys, ...rootKeys]) expect(found).toContain(secret);
  },
);

test('the patterns of both are those that the documentation says, and match what Keyfence makes', () => {
  const documented = readFileSync(join(SCANNERS, '../../control-plane/subjects/leaks/README.md'), 'utf8');
  const toml = readFileSync(fileOf('gitleaks.toml'), 'utf8');
  const { detectors } = parse(readFileSync(fileOf('trufflehog.yaml'), 'utf8')) as {
    detectors: { regex: { key: string } }[];
  };
  const ofToml = [...toml.matchAll(/^regex = '''(.+)'''$/gm)].map(([, regex]) => regex);
  expect(detectors.map(({ regex }) => regex.key)).toEqual(ofToml);
  for (const [bytes, prefix] of [
    [16, 'shop'],
    [24, 'shop'],
    [32, 'shop'],
    [24, 'kfroot'],
  ] as const) {
    const length = generateKey(bytes, prefix).length - prefix.length - 1;
    expect(documented).toContain(`\`${prefix}_[0-9A-Za-z]{${length}}\``);
  }
  for (const [secrets, regex = ''] of [
    [keys, ofToml[0]],
    [rootKeys, ofToml[1]],
  ] as const)
    for (const secret of secrets) expect(new RegExp(`^${regex}$`).test(secret)).toBe(true);
});

const noPython = skippedWithout('python3');
test.skipIf(noPython)(`checksum.py tells the secrets that Keyfence made from all others${noPython}`, () => {
  const changed = keys.map((key) => `${key.slice(0, -1)}${key.endsWith('0') ? '1' : '0'}`);
  const lines = [...keys, ...changed, ...rootKeys, ...OTHERS, generateKey(16), ''];
  const output = execFileSync('python3', [fileOf('checksum.py')], {
    input: lines.join('\n'),
    encoding: 'utf8',
  });
  expect(output.trimEnd().split('\n')).toEqual([...keys, ...rootKeys, lines.at(-2)]);
});
