import { createHash } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { Unkey } from '@unkey/api';

const { THERE_ROOT_KEY, THERE_URL, VERIFIER_URL } = process.env;
const retryConfig = { strategy: 'none' };
const here = new Unkey({ rootKey: 'none', serverURL: VERIFIER_URL, retryConfig });
const there = new Unkey({ rootKey: THERE_ROOT_KEY, serverURL: THERE_URL, retryConfig });
const written = new Set();

/** Takes a question, such as { key, credits: { cost: 2 } }, and returns the verdict. Rejects if it is unknown. */
export async function verify(question) {
  const { data } = await here.keys.verifyKey(question);
  if (data.code !== 'NOT_FOUND') return data;
  const { data: verdict } = await there.keys.verifyKey(question);
  if (verdict.keyId && !written.has(verdict.keyId)) {
    written.add(verdict.keyId);
    const hash = createHash('sha256').update(question.key).digest('hex');
    appendFileSync('hashes.csv', `${verdict.keyId},${hash}\n`);
  }
  return verdict;
}
