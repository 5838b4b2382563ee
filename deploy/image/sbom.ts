/**
 * Prints the CycloneDX bill of materials of the production dependencies: `npm run --silent sbom > sbom.json`.
 * `npm sbom --omit=dev` alone would leave out packages that both production and development need (seen with
 * npm 11.19), so npm first takes the others out of a copy of the lock.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { scriptArguments } from '../dev/arguments.ts';

scriptArguments('npm run --silent sbom > FILE: prints the bill of materials of what production installs', {});

const temporary = mkdtempSync(join(tmpdir(), 'keyfence-sbom-'));
try {
  // npm takes the folder's name as the program's name.
  const cwd = join(temporary, 'keyfence');
  for (const file of ['package.json', 'package-lock.json']) cpSync(file, join(cwd, file));
  const npm = (command: string) =>
    execFileSync('npm', command.split(' '), { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  npm('pkg delete devDependencies optionalDependencies');
  npm('install --package-lock-only --offline --ignore-scripts');
  const bill = JSON.parse(npm('sbom --package-lock-only --sbom-format=cyclonedx'));
  // The same packages must give the same bytes: no time, and a serial number derived from the content.
  delete bill.metadata.timestamp;
  delete bill.serialNumber;
  const hash = createHash('sha256').update(JSON.stringify(bill)).digest('hex');
  // A UUID of version 8 (RFC 9562 §5.8).
  bill.serialNumber = `urn:uuid:${hash.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-8$3-a$4-$5')}`;
  console.log(JSON.stringify(bill, null, 2));
} finally {
  rmSync(temporary, { recursive: true });
}
