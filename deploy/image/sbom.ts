/**
 * Prints the CycloneDX bill of materials of what production installs: `npm run --silent sbom > sbom.json`.
 * Not `npm sbom --omit=dev` alone: that leaves out what production and development both need (seen with npm 11.19).
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { scriptArguments } from '../dev/arguments.ts';

scriptArguments('npm run --silent sbom > FILE: prints the bill of materials of what production installs', {});

const manifest = JSON.parse(readFileSync('package.json', 'utf8'));
const lock = JSON.parse(readFileSync('package-lock.json', 'utf8'));
for (const owner of [manifest, lock.packages['']]) {
  delete owner.devDependencies;
  delete owner.optionalDependencies;
}
for (const [path, { dev, optional, devOptional }] of Object.entries<Record<string, unknown>>(lock.packages)) {
  if (dev || optional || devOptional) delete lock.packages[path];
}

const folder = mkdtempSync(join(tmpdir(), 'keyfence-sbom-'));
try {
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(lock));
  execFileSync('npm', ['sbom', '--package-lock-only', '--sbom-format=cyclonedx'], {
    cwd: folder,
    stdio: 'inherit',
  });
} finally {
  rmSync(folder, { recursive: true });
}
