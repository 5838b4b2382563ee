import { gets, posts } from './operation.ts';
import * as asked from './requests.ts';
import * as answers from './responses.ts';

/** Operations on root keys, the audit log and verifiers, as `keys.ts` has those on keys. */

export const createRootKey = posts('rootKeys.createRootKey', asked.CreateRootKey, answers.CreatedRootKey, {
  summary: 'Create a root key',
  description: 'A root key can give another one only permissions that it has itself.',
  permission: 'root.*.create_root_key',
  errors: ['CONFLICT'],
  example: { name: 'support', permissions: ['api.shop.read_key', 'api.shop.read_api'] },
});

export const updateRootKey = posts('rootKeys.updateRootKey', asked.UpdateRootKey, answers.UpdatedRootKey, {
  summary: 'Disable or enable a root key',
  description:
    'A disabled root key is refused from the next call on, and so are those that it made, and those that they made, until it is enabled.',
  permission: 'root.*.update_root_key',
  errors: ['NOT_FOUND'],
  example: { rootKeyId: 'root_0mzc9k4q8r2wfXa1Bc2d', enabled: false },
});

export const listRootKeys = gets('rootKeys.listRootKeys', asked.ListRootKeys, answers.RootKeyList, {
  summary: 'List root keys',
  description: 'Shows all but their secrets. Root keys of the configuration are not listed.',
  permission: 'root.*.read_root_key',
  errors: [],
});

export const listEvents = gets('audit.listEvents', asked.ListEvents, answers.EventPage, {
  summary: 'List calls that changed something or were refused',
  description: 'The latest come first. With a filter, a page may be short and still have a cursor.',
  permission: 'root.*.read_audit',
  errors: [],
});

export const listVerifiers = gets('fleet.listVerifiers', asked.ListVerifiers, answers.VerifierPage, {
  summary: 'List the verifiers',
  description: 'Shows the latest report of each, in order of start.',
  permission: 'root.*.read_fleet',
  errors: [],
});
