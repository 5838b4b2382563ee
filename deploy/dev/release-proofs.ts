// `npm version 0.3.0` runs this first: a release whose proofs are missing is none.
import { missingProofs } from '../../test/harness/proof-log.ts';
import { scriptArguments } from './arguments.ts';

scriptArguments(
  'node deploy/dev/release-proofs.ts: lists the proofs that a release lacks; status 1 if there are any',
  {},
);
const missing = missingProofs();
if (missing.length > 0) {
  console.error(
    `These proofs of a release are missing; deploy/releasing.md has their commands:\n${missing.join('\n')}`,
  );
  process.exitCode = 1;
}
