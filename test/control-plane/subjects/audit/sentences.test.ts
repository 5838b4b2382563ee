import { expect, test } from 'vitest';
import { sentenceOf } from '../../../../control-plane/subjects/audit/sentences.ts';

const by = { rootKeyId: 'bootstrap_0a1b' };
const ada = { person: { subject: '1', email: 'ada@example.com' } };

test.each([
  ['bootstrap disabled key key_1 in shop', 'keys.updateKey', { after: { enabled: false } }],
  ['ada@example.com rotated key_1 in shop', 'keys.rerollKey', { by: ada }],
  [
    'bootstrap was refused keys.createKey shop',
    'keys.createKey',
    { outcome: 'FORBIDDEN', on: { apiId: 'shop' } },
  ],
  ['Keyfence disabled as unused key_1 in shop', 'rules.disableUnused', { by: {} }],
  [
    'bootstrap moved acme to role_pro',
    'identities.updateIdentity',
    { on: { identityId: 'identity_1', externalId: 'acme' }, after: { roles: ['role_pro'] } },
  ],
  [
    'GitHub found in public: key key_1 in shop https://example.com/x',
    'leaks.report',
    { after: { leak: { source: 'GitHub', url: 'https://example.com/x' } } },
  ],
])('says %s', (sentence, operation, event) => {
  const on = { keyId: 'key_1', apiId: 'shop' };
  expect(sentenceOf({ operation, outcome: 'OK', by, on, ...event })).toBe(sentence);
});
