import * as certManager from '@kubernetes-models/cert-manager/cert-manager.io/v1';
import { ExternalSecret } from '@kubernetes-models/external-secrets/external-secrets.io/v1/ExternalSecret';
import { Gateway } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/Gateway';
import { HTTPRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute';
import { PodMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor';
import { PrometheusRule } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule';
import { ServiceMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor';
import * as admission from 'kubernetes-models/admissionregistration.k8s.io/v1';
import * as extensions from 'kubernetes-models/apiextensions.k8s.io/v1';
import * as apps from 'kubernetes-models/apps/v1';
import * as autoscaling from 'kubernetes-models/autoscaling/v2';
import * as batch from 'kubernetes-models/batch/v1';
import * as networking from 'kubernetes-models/networking.k8s.io/v1';
import * as policy from 'kubernetes-models/policy/v1';
import * as rbac from 'kubernetes-models/rbac.authorization.k8s.io/v1';
import * as scheduling from 'kubernetes-models/scheduling.k8s.io/v1';
import * as core from 'kubernetes-models/v1';
import type { Manifest } from './kustomize.ts';

const GROUPS: Record<string, object> = {
  v1: core,
  'apps/v1': apps,
  'apiextensions.k8s.io/v1': extensions,
  'rbac.authorization.k8s.io/v1': rbac,
  'autoscaling/v2': autoscaling,
  'batch/v1': batch,
  'policy/v1': policy,
  'scheduling.k8s.io/v1': scheduling,
  'networking.k8s.io/v1': networking,
  'admissionregistration.k8s.io/v1': admission,
  'gateway.networking.k8s.io/v1': { Gateway, HTTPRoute },
  'cert-manager.io/v1': certManager,
  'external-secrets.io/v1': { ExternalSecret },
  'monitoring.coreos.com/v1': { PodMonitor, PrometheusRule, ServiceMonitor },
};

type ModelClass = new (data: object) => { validate(): void };

/**
 * Lists what Kubernetes 1.36 would refuse under strict validation: wrong values, missing fields, and fields that do not
 * exist. Unknown kinds are refused too.
 */
export function schemaFaults(manifest: Manifest): string[] {
  const kinds = GROUPS[manifest.apiVersion] as Record<string, ModelClass> | undefined;
  const Model = kinds?.[manifest.kind];
  if (!Model) return [`no schema for ${manifest.apiVersion} ${manifest.kind}`];
  const faults: string[] = [];
  const unread = new Map<string, Set<string>>();
  try {
    Model.prototype.validate.call(watched(new Model(manifest), '', unread));
  } catch (error) {
    faults.push((error as Error).message);
  }
  // A definition has schemas of any depth, which real API servers check.
  for (const [path, fields] of unread)
    for (const field of fields)
      if (!path.includes('openAPIV3Schema')) faults.push(`unknown field ${path}/${field}`);
  return faults;
}

/**
 * The schemas let unknown fields pass, but the code made from them reads every field that they know, and lists the
 * keys of every map: what was neither read nor listed is unknown.
 */
function watched<T extends object>(target: T, path: string, unread: Map<string, Set<string>>): T {
  const left = new Set(Array.isArray(target) ? [] : Object.keys(target));
  unread.set(path, left);
  const inner = new Map<string | symbol, object>();
  return new Proxy(target, {
    get(object, field) {
      left.delete(String(field));
      const value: unknown = Reflect.get(object, field);
      if (typeof value !== 'object' || value === null) return value;
      const known = inner.get(field) ?? watched(value, `${path}/${String(field)}`, unread);
      inner.set(field, known);
      return known;
    },
    ownKeys(object) {
      left.clear();
      return Reflect.ownKeys(object);
    },
  });
}
