import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { importsOf, reachedFrom } from './imports.ts';

/**
 * The projects of Vitest. `unit` starts no process and ends in seconds; `redis` starts servers, Redis above all; `system`
 * runs gateways, browsers, images, manifests, whole processes and whatever a machine may lack; `proof` searches:
 * simulation, model, mutants, chaos, kills at any moment, generated requests. `npm test` runs the first two, and so skips
 * nothing where Node and Redis are.
 */
export const PROJECTS = ['unit', 'redis', 'system', 'proof'] as const;
export type Project = (typeof PROJECTS)[number];

const ROOT = join(import.meta.dirname, '..', '..');
const PROOF =
  /^test\/proof\/|differential|data-events|proxy-without-lane|schemathesis|lane\/survival|webhooks\/kills|root-keys\/killed|identities\/races/;
const SYSTEM =
  /^test\/(deploy|gateways|control-plane\/clients\/dashboard|end-to-end|commands\.|documentation\.|control-plane\/clients\/cli\/(?:package|library|declared)\.|bench\/revocation\.)/;
/** Files that take whole Clusters, floods, failovers, the time of leases or a compiler, and would make `npm test` dear. */
const DEAR =
  /\/(cluster-members|look-up-shares|replica-away|charges|issue-token|cli\/tokens|core-alone)\.test\.ts$/;
/** They ask git alone, which ends at once. */
const ASKS_GIT = ['test/tidy.test.ts', 'test/harness/share.ts'];
/** Tests that say themselves when they cannot run. */
const MAY_SKIP = /\b(?:skip|skipIf|runIf)\(/;
/** Starts openssl, without which its tests fail. */
const NEEDS_OPENSSL = 'test/harness/certificates.ts';

/** Puts every test file into its project. Which start processes is read from their imports, so that no list gets old. */
export function testsByProject(): Record<Project, string[]> {
  const files = globSync('{test,deploy,bench,shared,control-plane,verifier}/**/*.ts', {
    cwd: ROOT,
    // The tests of the examples run in an application that has installed the package.
    exclude: (name) => name === 'node_modules' || name === 'deploy/examples',
  });
  const texts = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));
  const imports = importsOf(texts);
  for (const file of ASKS_GIT)
    imports.set(file, imports.get(file)?.filter((name) => name !== 'node:child_process') ?? []);
  const projects: Record<Project, string[]> = { unit: [], redis: [], system: [], proof: [] };
  for (const file of files.filter((name) => name.endsWith('.test.ts')).sort()) {
    const reached = reachedFrom(imports, file);
    const startsProcesses = reached.has('node:child_process');
    const needsPrograms = MAY_SKIP.test(texts.get(file) ?? '') || reached.has(NEEDS_OPENSSL);
    if (PROOF.test(file)) projects.proof.push(file);
    else if (SYSTEM.test(file) || DEAR.test(file) || needsPrograms) projects.system.push(file);
    else projects[startsProcesses ? 'redis' : 'unit'].push(file);
  }
  return projects;
}
