// Ends with status 0 if node_modules holds what package-lock.json asks for (--omit=dev: what running needs of it); else says
// what happens next, and ends with 1. Plain JavaScript, which an old Node can read.
import { readFileSync } from 'node:fs';

const omitsDev = process.argv.includes('--omit=dev');
const wanted = packagesOf('package-lock.json');
const present = packagesOf('node_modules/.package-lock.json');
// Most optional packages are of other platforms.
const isThere = (path) =>
  present[path] ? present[path].integrity === wanted[path].integrity : wanted[path].optional === true;

const missing = Object.keys(wanted).filter((path) => !isThere(path) && !(omitsDev && wanted[path].dev));
if (missing.length > 0) {
  const what = omitsDev ? 'what running needs, Node 24 among it' : 'what tests need';
  console.error(`keyfence: installing ${missing.length} packages with npm ci: ${what}; once …`);
  process.exit(1);
}

/** The packages of a lock file by their folder; of one that is not there, none. */
function packagesOf(file) {
  try {
    const { packages } = JSON.parse(readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8'));
    delete packages['']; // the project itself
    return packages;
  } catch {
    return {};
  }
}
