import type { Kube, Metadata, Resource } from './kube.ts';
import { FINALIZER } from './objects.ts';

/** Tells whether an object waits for the operator before it goes. */
export const isHeld = ({ finalizers = [] }: Metadata): boolean => finalizers.includes(FINALIZER);

/** Adds the finalizer, before anything is made that it must outlive. Resolves with false if the object is gone. */
export async function hold(kube: Kube, resource: Resource, metadata: Metadata): Promise<boolean> {
  if (isHeld(metadata)) return true;
  const { finalizers = [], name, resourceVersion } = metadata;
  const patch = { metadata: { resourceVersion, finalizers: [...finalizers, FINALIZER] } };
  return (await kube.patch(resource, name, patch)) !== undefined;
}

/** Takes the finalizer off: the object goes. */
export async function release(kube: Kube, resource: Resource, metadata: Metadata): Promise<void> {
  const { finalizers = [], name, resourceVersion } = metadata;
  const rest = finalizers.filter((each) => each !== FINALIZER);
  await kube.patch(resource, name, { metadata: { resourceVersion, finalizers: rest } });
}
