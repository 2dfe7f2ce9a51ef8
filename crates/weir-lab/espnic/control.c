// SPDX-License-Identifier: GPL-2.0
/* What the kernel asks of the card: associations and policies, taken or refused. */

#include <linux/module.h>
#include <net/ip6_route.h>

#include "espnic.h"

#define MODE_CRYPTO	1
#define MODE_PACKET	2

static unsigned int modes = MODE_CRYPTO | MODE_PACKET;
module_param(modes, uint, 0644);
MODULE_PARM_DESC(modes, "what the card can do: 1 crypto, 2 packet, 3 both");

static unsigned int sa_max = 64;
module_param(sa_max, uint, 0644);
MODULE_PARM_DESC(sa_max, "associations that fit into the card");

#define REFUSE_IF(condition, words) do {		\
	if (condition) {				\
		NL_SET_ERR_MSG_MOD(extack, words);	\
		return -EINVAL;				\
	}						\
} while (0)

static int check_state(struct xfrm_state *x, struct netlink_ext_ack *extack)
{
	bool packet = x->xso.type == XFRM_DEV_OFFLOAD_PACKET;
	struct xfrm_lifetime_cfg *lft = &x->lft;

	REFUSE_IF(!(modes & (packet ? MODE_PACKET : MODE_CRYPTO)), "The card cannot do this mode");
	REFUSE_IF(x->id.proto != IPPROTO_ESP, "Only ESP");
	REFUSE_IF(x->props.aalgo != SADB_AALG_NONE || x->props.calgo != SADB_X_CALG_NONE,
		  "No authentication or compression of its own");
	REFUSE_IF(!x->aead || strcmp(x->aead->alg_name, "rfc4106(gcm(aes))"), "Only AES-GCM");
	REFUSE_IF(x->aead->alg_icv_len != 128, "Only an ICV of 128 bit");
	REFUSE_IF(x->aead->alg_key_len != 128 + 32 && x->aead->alg_key_len != 256 + 32,
		  "Only keys of 128 or 256 bit");
	REFUSE_IF(!x->geniv || strcmp(x->geniv, "seqiv"), "Only geniv seqiv");
	REFUSE_IF(x->encap, "No encapsulation in UDP");
	REFUSE_IF(x->tfcpad, "No TFC padding");
	REFUSE_IF(x->props.family != AF_INET && x->props.family != AF_INET6, "Only IP");
	REFUSE_IF(x->sel.proto && x->sel.proto != IPPROTO_TCP && x->sel.proto != IPPROTO_UDP,
		  "No upper protocol but TCP and UDP");
	REFUSE_IF(x->props.mode != XFRM_MODE_TUNNEL &&
		  (packet || x->props.mode != XFRM_MODE_TRANSPORT),
		  "Only tunnel mode, and transport mode for crypto");
	if (!packet)
		return 0;
	REFUSE_IF(!x->props.reqid, "No packet offload without reqid");
	REFUSE_IF(x->replay_esn && x->xso.dir == XFRM_DEV_OFFLOAD_IN &&
		  x->replay_esn->replay_window != 32 && x->replay_esn->replay_window != 64 &&
		  x->replay_esn->replay_window != 128 && x->replay_esn->replay_window != 256,
		  "Only a replay window of 32, 64, 128 or 256");
	REFUSE_IF(!lft->soft_byte_limit || !lft->hard_byte_limit || !lft->soft_packet_limit ||
		  !lft->hard_packet_limit, "No limits of 0");
	REFUSE_IF((lft->hard_byte_limit != XFRM_INF &&
		   lft->soft_byte_limit >= lft->hard_byte_limit) ||
		  (lft->hard_packet_limit != XFRM_INF &&
		   lft->soft_packet_limit >= lft->hard_packet_limit),
		  "Hard limits must be above soft ones");
	return 0;
}

static void free_sa(struct sa *sa)
{
	if (sa->request)
		aead_request_free(sa->request);
	if (!IS_ERR_OR_NULL(sa->aead))
		crypto_free_aead(sa->aead);
	kfree_sensitive(sa);
}

static int prepare_cipher(struct sa *sa)
{
	struct xfrm_algo_aead *key = sa->x->aead;
	int err;

	sa->aead = crypto_alloc_aead(key->alg_name, 0, CRYPTO_ALG_ASYNC);
	if (IS_ERR(sa->aead))
		return PTR_ERR(sa->aead);
	err = crypto_aead_setkey(sa->aead, key->alg_key, key->alg_key_len / 8);
	if (!err)
		err = crypto_aead_setauthsize(sa->aead, ICV_LEN);
	if (err)
		return err;
	sa->request = aead_request_alloc(sa->aead, GFP_KERNEL);
	return sa->request ? 0 : -ENOMEM;
}

static void begin_numbers(struct sa *sa)
{
	struct xfrm_replay_state_esn *r = sa->x->replay_esn;

	if (sa->x->xso.dir == XFRM_DEV_OFFLOAD_OUT) {
		sa->seq = r ? (u64)r->oseq_hi << 32 | r->oseq : sa->x->replay.oseq;
		return;
	}
	sa->seq = r ? (u64)r->seq_hi << 32 | r->seq : sa->x->replay.seq;
	/* Who goes on with old numbers has seen all of them. */
	if (sa->seq)
		bitmap_fill(sa->seen, WINDOW);
}

static int espnic_state_add(struct xfrm_state *x, struct netlink_ext_ack *extack)
{
	struct nic *nic = netdev_priv(x->xso.real_dev);
	u8 mac[ETH_ALEN];
	struct sa *sa;
	int err;

	/* A state that waits for its keys is the kernel's own affair. */
	if (x->xso.flags & XFRM_DEV_OFFLOAD_FLAG_ACQ)
		return 0;
	err = check_state(x, extack);
	if (err)
		return err;
	sa = kzalloc(sizeof(*sa), GFP_KERNEL);
	if (!sa)
		return -ENOMEM;
	sa->x = x;
	err = prepare_cipher(sa);
	if (err)
		goto fail;
	begin_numbers(sa);
	sa->packets_max = x->lft.hard_packet_limit;
	sa->bytes_max = x->lft.hard_byte_limit;
	spin_lock_bh(&nic->lock);
	if (nic->sa_count >= sa_max) {
		NL_SET_ERR_MSG_MOD(extack, "The card is full");
		err = -ENOSPC;
	} else {
		nic->sa_count++;
		list_add(&sa->list, &nic->sas);
		x->xso.offload_handle = (unsigned long)sa;
	}
	spin_unlock_bh(&nic->lock);
	if (err)
		goto fail;
	/* So that the first packet finds its way. */
	if (packet_mode(sa) && x->xso.dir == XFRM_DEV_OFFLOAD_OUT)
		espnic_next_hop(nic->dev, x->props.family, &x->id.daddr, mac);
	return 0;
fail:
	free_sa(sa);
	return err;
}

static void espnic_state_delete(struct xfrm_state *x)
{
	struct nic *nic = netdev_priv(x->xso.real_dev);
	struct sa *sa = (struct sa *)x->xso.offload_handle;

	if (!sa)
		return;
	spin_lock_bh(&nic->lock);
	if (!list_empty(&sa->list)) {
		list_del_init(&sa->list);
		nic->sa_count--;
	}
	spin_unlock_bh(&nic->lock);
}

static void espnic_state_free(struct xfrm_state *x)
{
	struct sa *sa = (struct sa *)x->xso.offload_handle;

	if (!sa)
		return;
	espnic_state_delete(x);
	x->xso.offload_handle = 0;
	free_sa(sa);
}

static bool espnic_offload_ok(struct sk_buff *skb, struct xfrm_state *x)
{
	return x->props.family == AF_INET ? ip_hdr(skb)->ihl == 5
					  : !ipv6_ext_hdr(ipv6_hdr(skb)->nexthdr);
}

static void espnic_advance_esn(struct xfrm_state *x)
{
	/* The kernel tells the high half with each packet, or it is inferred. */
}

static void espnic_update_stats(struct xfrm_state *x)
{
	struct nic *nic = netdev_priv(x->xso.real_dev);
	struct sa *sa = (struct sa *)x->xso.offload_handle;

	if (!sa || x->xso.type != XFRM_DEV_OFFLOAD_PACKET)
		return;
	spin_lock_bh(&nic->lock);
	x->curlft.packets += sa->packets - sa->told_packets;
	x->curlft.bytes += sa->bytes - sa->told_bytes;
	sa->told_packets = sa->packets;
	sa->told_bytes = sa->bytes;
	x->stats.replay += sa->replayed;
	x->stats.integrity_failed += sa->forged;
	sa->replayed = 0;
	sa->forged = 0;
	spin_unlock_bh(&nic->lock);
}

static int espnic_policy_add(struct xfrm_policy *p, struct netlink_ext_ack *extack)
{
	struct nic *nic = netdev_priv(p->xdo.dev);
	const struct xfrm_selector *sel = &p->selector;
	struct rule *rule;

	REFUSE_IF(!(modes & MODE_PACKET), "The card cannot do this mode");
	REFUSE_IF(p->type != XFRM_POLICY_TYPE_MAIN, "Only main policies");
	REFUSE_IF(p->xfrm_nr > 1, "No more than one template");
	REFUSE_IF(p->xdo.dir != XFRM_DEV_OFFLOAD_IN && p->xdo.dir != XFRM_DEV_OFFLOAD_OUT,
		  "No forward policies");
	REFUSE_IF(!p->xfrm_vec[0].reqid && !sel->proto &&
		  xfrm_addr_any(&sel->saddr, sel->family) &&
		  xfrm_addr_any(&sel->daddr, sel->family), "No reqid and no selector");
	REFUSE_IF(sel->proto && sel->proto != IPPROTO_TCP && sel->proto != IPPROTO_UDP,
		  "No upper protocol but TCP and UDP");
	REFUSE_IF(p->priority == U32_MAX, "No such priority");

	rule = kzalloc(sizeof(*rule), GFP_KERNEL);
	if (!rule)
		return -ENOMEM;
	rule->sel = *sel;
	rule->priority = p->priority;
	rule->reqid = p->xfrm_nr ? p->xfrm_vec[0].reqid : 0;
	rule->dir = p->xdo.dir;
	rule->action = p->action;
	spin_lock_bh(&nic->lock);
	list_add_tail(&rule->list, &nic->rules);
	spin_unlock_bh(&nic->lock);
	p->xdo.offload_handle = (unsigned long)rule;
	return 0;
}

static void espnic_policy_delete(struct xfrm_policy *p)
{
	struct nic *nic = netdev_priv(p->xdo.dev);
	struct rule *rule = (struct rule *)p->xdo.offload_handle;

	if (!rule)
		return;
	spin_lock_bh(&nic->lock);
	list_del_init(&rule->list);
	spin_unlock_bh(&nic->lock);
}

static void espnic_policy_free(struct xfrm_policy *p)
{
	espnic_policy_delete(p);
	kfree((struct rule *)p->xdo.offload_handle);
	p->xdo.offload_handle = 0;
}

const struct xfrmdev_ops espnic_xfrm_ops = {
	.xdo_dev_state_add = espnic_state_add,
	.xdo_dev_state_delete = espnic_state_delete,
	.xdo_dev_state_free = espnic_state_free,
	.xdo_dev_offload_ok = espnic_offload_ok,
	.xdo_dev_state_advance_esn = espnic_advance_esn,
	.xdo_dev_state_update_stats = espnic_update_stats,
	.xdo_dev_policy_add = espnic_policy_add,
	.xdo_dev_policy_delete = espnic_policy_delete,
	.xdo_dev_policy_free = espnic_policy_free,
};
