// Prints `<n> passed, <n> failed` and ends with status 0 only when everything passed. Runs with any Node.
// Usage: count.mjs STATUS-OF-THE-CHECKS STATUS-OF-THE-TESTS REPORT.json…
import { readFileSync } from 'node:fs';

const [checks, tests, ...files] = process.argv.slice(2);
let passed = 0;
let failed = Number(checks) === 0 ? 0 : 1;
// A file that cannot be loaded has no failed tests; it counts as one.
const isUnread = ({ status, assertionResults }) =>
  status === 'failed' && !assertionResults.some((result) => result.status === 'failed');
for (const file of files) {
  try {
    const report = JSON.parse(readFileSync(file, 'utf8'));
    passed += report.numPassedTests;
    failed += report.numFailedTests + report.testResults.filter(isUnread).length;
  } catch {
    failed += 1;
  }
}
if (Number(tests) !== 0 && failed === 0) failed = 1;
if (Number(checks) !== 0) console.log('npm run check failed: what it said is above the tests');
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
