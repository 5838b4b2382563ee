import type { Operations } from '../client/interface.ts';

/** The things that the control plane answers with. */
type Answer<Name extends keyof Operations> = Operations[Name]['output'];

export type Key = Answer<'keys.getKey'>;
export type Api = Answer<'apis.listApis'>['apis'][number];
export type Refusal = Answer<'keys.listRefusals'>['refusals'][number];
export type ListedEvent = Answer<'audit.listEvents'>['events'][number];
export type ListedSession = Answer<'rootKeys.listSessions'>['sessions'][number];
export type Permission = Answer<'permissions.listPermissions'>[number];
export type Delivery = Answer<'webhooks.listDeliveries'>['deliveries'][number];
