import type { Command } from 'commander';

/** Ids in the examples: of a key, a role, a root key, a session, and a webhook endpoint with a delivery. */
export const EXAMPLE_IDS = {
  keyId: 'key_0Vc1iPBOSJfMufLJEFOb',
  roleId: 'role_0Vc1iPBOSJfMufLJEFOb',
  rootKeyId: 'root_0Vc1iPBOSJfMufLJEFOb',
  sessionId: 'session_0Vc1iPBOSJfMufLJEFOb',
  endpointId: 'endpoint_0Vc1iPBOSJfMufLJEFOb',
  deliveryId: 'a1790000000000-0',
} as const;
const { keyId, roleId, rootKeyId, sessionId, endpointId, deliveryId } = EXAMPLE_IDS;

/** Examples of each command, without the word `keyfence`. `secret.txt` has the secret of a key. */
const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  'keys create': [
    'keys create shop --name Ada --external-id ada --expires +30d',
    'keys create shop --remaining 1000 --ratelimit 100/1m --permissions files.read',
  ],
  'keys get': [`keys get ${keyId}`],
  'keys whoami': ['keys whoami < secret.txt'],
  'keys list': ['keys list shop --disabled --limit 20', 'keys list shop --external-id ada'],
  'keys update': [`keys update ${keyId} --name Grace --expires +7d`, `keys update ${keyId} --clear expires`],
  'keys enable': [`keys enable ${keyId}`, 'keys enable --api shop --owner ada'],
  'keys disable': [`keys disable ${keyId}`, 'keys disable --api shop --owner ada --wait 10'],
  'keys delete': [`keys delete ${keyId} --yes`],
  'keys reroll': [`keys reroll ${keyId} --expiration 12h`],
  'keys credits': [`keys credits ${keyId} increment 500`],
  'keys permissions': [`keys permissions ${keyId} add files.read,files.write`],
  'keys roles': [`keys roles ${keyId} set editor`],
  'keys usage': [`keys usage ${keyId} --hourly`],
  'keys propagation': [`keys propagation ${keyId} 1042`],
  'keys refusals': [`keys refusals ${keyId}`],
  'keys explain': [`keys explain ${keyId} --api shop --permissions 'files.read OR files.write'`],
  'keys verify': ['keys verify --api shop < secret.txt'],
  'keys import': ['keys import shop keys.ndjson'],
  'keys export': ['keys export shop --output shop.ndjson'],
  'apis create': ['apis create Shop --id webshop --default-prefix shop'],
  'apis update': ["apis update shop --name 'The shop'"],
  'apis get': ['apis get shop'],
  'apis list': ['apis list --limit 20'],
  'apis usage': ['apis usage shop --by-tag'],
  'apis delete': ['apis delete webshop --yes'],
  'permissions create': ["permissions create files.read --name 'Read files'"],
  'permissions list': ['permissions list'],
  'permissions delete': ['permissions delete files.read --yes'],
  'identities create': [
    'identities create grace --ratelimits \'[{"name":"requests","limit":1000,"duration":60000}]\'',
  ],
  'identities get': ['identities get grace'],
  'identities list': ['identities list --limit 20'],
  'identities update': ['identities update grace --meta \'{"plan":"pro"}\''],
  'identities disable': ['identities disable grace'],
  'identities enable': ['identities enable grace'],
  'identities delete': ['identities delete grace --yes'],
  'roles create': ['roles create editor --permissions files.read,files.write'],
  'roles list': ['roles list'],
  'roles set': [`roles set ${roleId} files.read`],
  'roles delete': [`roles delete ${roleId} --yes`],
  'root-keys create': ['root-keys create support --permission api.*.read_key api.*.read_api'],
  'root-keys list': ['root-keys list'],
  'root-keys sessions': ['root-keys sessions'],
  'root-keys end-session': [`root-keys end-session ${sessionId}`],
  'root-keys enable': [`root-keys enable ${rootKeyId}`],
  'root-keys delete': [`root-keys delete ${rootKeyId} --yes`],
  'root-keys disable': [`root-keys disable ${rootKeyId}`],
  'webhooks create': [
    'webhooks create https://hooks.example.com/keyfence',
    'webhooks create https://hooks.example.com/keyfence --events key.disabled,key.expiring --api-ids shop',
  ],
  'webhooks get': [`webhooks get ${endpointId}`],
  'webhooks list': ['webhooks list'],
  'webhooks update': [`webhooks update ${endpointId} --name Hooks`],
  'webhooks enable': [`webhooks enable ${endpointId}`],
  'webhooks disable': [`webhooks disable ${endpointId}`],
  'webhooks rotate-secret': [`webhooks rotate-secret ${endpointId}`],
  'webhooks deliveries': [`webhooks deliveries ${endpointId} --limit 20`],
  'webhooks redeliver': [`webhooks redeliver ${endpointId} ${deliveryId}`],
  'webhooks test': [`webhooks test ${endpointId}`],
  'webhooks delete': [`webhooks delete ${endpointId} --yes`],
  fleet: ['fleet'],
  audit: [
    'audit --since yesterday --until yesterday',
    `audit --key ${keyId} --since 2h`,
    'audit --refused --operation keys.updateKey',
  ],
  doctor: ['doctor'],
  completion: ['completion fish'],
};

/** Adds its examples to the help of each command. Throws an Error if a command has none. */
export function addExamples(program: Command): void {
  for (const [path, command] of leaves(program)) {
    const examples = EXAMPLES[path];
    if (examples === undefined) throw new Error(`${path}: has no example`);
    const heading = examples.length > 1 ? 'Examples:' : 'Example:';
    const lines = examples.map((example) => `  ${program.name()} ${example}`);
    command.addHelpText('after', `\n${[heading, ...lines].join('\n')}`);
  }
}

/** Iterates over the commands without subcommands, with their words. */
function* leaves(command: Command, path = ''): Generator<[path: string, command: Command]> {
  for (const child of command.commands) {
    const childPath = `${path} ${child.name()}`.trim();
    if (child.commands.length === 0) yield [childPath, child];
    else yield* leaves(child, childPath);
  }
}
