// SPDX-License-Identifier: GPL-2.0
/* The way of a packet through the card: out, and in. */

#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <net/dsfield.h>
#include <net/ip.h>
#include <net/ip6_route.h>

#include "espnic.h"

#define ESP_HEAD	(sizeof(struct ip_esp_hdr) + IV_LEN)
#define ESP_MIN		(ESP_HEAD + 4 + ICV_LEN)

static bool exact;
module_param(exact, bool, 0644);
MODULE_PARM_DESC(exact, "policies match single addresses, as mlx5's did before Linux 6.15");

static bool broken;
module_param(broken, bool, 0644);
MODULE_PARM_DESC(broken, "a fault: packets of a policy leave in clear, and nothing counts them");

/* Where the ESP header of a packet is. */
struct outer {
	xfrm_address_t daddr;
	u16 family;
	unsigned int esp, end;	/* from the IP header on */
};

static void count_drop(struct nic *nic)
{
	spin_lock_bh(&nic->lock);
	nic->dropped++;
	spin_unlock_bh(&nic->lock);
}

/* AES-GCM over one whole ESP packet in place; on the way out the IV is the sequence number. */
static int crypt(struct sa *sa, u8 *esp, unsigned int len, u64 seq, bool seal)
{
	unsigned int aad_len = esn(sa) ? 12 : 8, text = len - ESP_HEAD;
	struct scatterlist sg[2];

	if (seal)
		put_unaligned_be64(seq, esp + 8);
	memcpy(sa->iv, esp + 8, IV_LEN);
	memcpy(sa->aad, esp, 4);
	if (esn(sa))
		put_unaligned_be32(seq >> 32, sa->aad + 4);
	memcpy(sa->aad + aad_len - 4, esp + 4, 4);
	memcpy(sa->aad + aad_len, sa->iv, IV_LEN);
	sg_init_table(sg, 2);
	sg_set_buf(&sg[0], sa->aad, aad_len + IV_LEN);
	sg_set_buf(&sg[1], esp + ESP_HEAD, text);
	aead_request_set_callback(sa->request, 0, NULL, NULL);
	aead_request_set_ad(sa->request, aad_len + IV_LEN);
	aead_request_set_crypt(sa->request, sg, sg, seal ? text - ICV_LEN : text, sa->iv);
	return seal ? crypto_aead_encrypt(sa->request) : crypto_aead_decrypt(sa->request);
}

/* A frame that is ours alone, in one piece. */
static struct sk_buff *own(struct sk_buff *skb)
{
	skb = skb_unshare(skb, GFP_ATOMIC);
	if (skb && skb_linearize(skb)) {
		kfree_skb(skb);
		return NULL;
	}
	return skb;
}

/* Finds ESP right behind an IP header that is not a fragment's. */
static bool parse_outer(struct sk_buff *skb, unsigned int at, struct outer *outer)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip4;

	memset(outer, 0, sizeof(*outer));
	if (skb->protocol == htons(ETH_P_IP)) {
		if (!pskb_may_pull(skb, at + sizeof(*ip4)))
			return false;
		ip4 = (struct iphdr *)(skb->data + at);
		if (ip4->version != 4 || ip4->ihl < 5 || ip4->protocol != IPPROTO_ESP ||
		    ip_is_fragment(ip4))
			return false;
		outer->family = AF_INET;
		outer->daddr.a4 = ip4->daddr;
		outer->esp = ip4->ihl * 4;
		outer->end = ntohs(ip4->tot_len);
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		if (!pskb_may_pull(skb, at + sizeof(*ip6)))
			return false;
		ip6 = (struct ipv6hdr *)(skb->data + at);
		if (ip6->version != 6 || ip6->nexthdr != IPPROTO_ESP)
			return false;
		outer->family = AF_INET6;
		outer->daddr.in6 = ip6->daddr;
		outer->esp = sizeof(*ip6);
		outer->end = sizeof(*ip6) + ntohs(ip6->payload_len);
	} else {
		return false;
	}
	return outer->end >= outer->esp + ESP_MIN && skb->len >= at + outer->end &&
	       pskb_may_pull(skb, at + outer->esp + ESP_HEAD);
}

/* ---- Out ---- */

static bool prefix_matches(const xfrm_address_t *addr, const xfrm_address_t *net, u8 len,
			   u16 family)
{
	if (exact)
		return xfrm_addr_any(net, family) || xfrm_addr_equal(addr, net, family);
	return family == AF_INET ? addr4_match(addr->a4, net->a4, len)
				 : addr_match(addr, net, len);
}

/* The most important policy that the IP packet in a frame meets. */
static struct rule *match(struct nic *nic, struct sk_buff *skb, u16 family)
{
	const u8 *ip = skb->data + ETH_HLEN, *ports = NULL;
	struct rule *rule, *best = NULL;
	xfrm_address_t saddr, daddr;
	unsigned int len;
	u8 proto;

	if (family == AF_INET) {
		const struct iphdr *ip4 = (const struct iphdr *)ip;

		saddr.a4 = ip4->saddr;
		daddr.a4 = ip4->daddr;
		proto = ip4->protocol;
		len = ip4->ihl * 4;
		if (ip4->frag_off & htons(IP_OFFSET))
			len = skb->len;
	} else {
		const struct ipv6hdr *ip6 = (const struct ipv6hdr *)ip;

		saddr.in6 = ip6->saddr;
		daddr.in6 = ip6->daddr;
		proto = ip6->nexthdr;
		len = sizeof(*ip6);
	}
	if (skb->len >= ETH_HLEN + len + 4)
		ports = ip + len;
	list_for_each_entry(rule, &nic->rules, list) {
		const struct xfrm_selector *sel = &rule->sel;

		if (rule->dir != XFRM_DEV_OFFLOAD_OUT || sel->family != family ||
		    (best && best->priority <= rule->priority) ||
		    !prefix_matches(&saddr, &sel->saddr, sel->prefixlen_s, family) ||
		    !prefix_matches(&daddr, &sel->daddr, sel->prefixlen_d, family) ||
		    (sel->proto && sel->proto != proto))
			continue;
		if ((sel->sport_mask || sel->dport_mask) &&
		    (!ports ||
		     ((get_unaligned((__be16 *)ports) ^ sel->sport) & sel->sport_mask) ||
		     ((get_unaligned((__be16 *)(ports + 2)) ^ sel->dport) & sel->dport_mask)))
			continue;
		best = rule;
	}
	return best;
}

/* Makes the ESP packet around the IP packet in a frame, all but the Ethernet header's addresses. */
static int wrap(struct nic *nic, struct sa *sa, struct sk_buff *skb, u16 inner_family)
{
	unsigned int inner = skb->len - ETH_HLEN, pad = -(inner + 2) & 3, i;
	bool v4 = sa->x->props.family == AF_INET;
	unsigned int outer = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	unsigned int esp_len = ESP_HEAD + inner + pad + 2 + ICV_LEN;
	struct ip_esp_hdr *esp;
	u8 dscp, *tail;

	if (outer + esp_len > READ_ONCE(nic->lower->mtu) ||
	    sa->packets >= sa->packets_max || sa->bytes >= sa->bytes_max ||
	    (!esn(sa) && sa->seq >= U32_MAX) || sa->seq == U64_MAX)
		return -EMSGSIZE;
	if (pskb_expand_head(skb, outer + ESP_HEAD, pad + 2 + ICV_LEN, GFP_ATOMIC))
		return -ENOMEM;
	dscp = inner_family == AF_INET
		? ipv4_get_dsfield((struct iphdr *)(skb->data + ETH_HLEN))
		: ipv6_get_dsfield((struct ipv6hdr *)(skb->data + ETH_HLEN));
	dscp &= INET_DSCP_MASK;
	tail = skb_put(skb, pad + 2 + ICV_LEN);
	for (i = 0; i < pad; i++)
		tail[i] = i + 1;
	tail[pad] = pad;
	tail[pad + 1] = inner_family == AF_INET ? IPPROTO_IPIP : IPPROTO_IPV6;

	skb_push(skb, outer + ESP_HEAD);
	memmove(skb->data, skb->data + outer + ESP_HEAD, 2 * ETH_ALEN);
	skb->protocol = v4 ? htons(ETH_P_IP) : htons(ETH_P_IPV6);
	((struct ethhdr *)skb->data)->h_proto = skb->protocol;
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	skb_set_transport_header(skb, ETH_HLEN + outer);
	if (v4) {
		struct iphdr *ip4 = ip_hdr(skb);

		*ip4 = (struct iphdr) {
			.version = 4, .ihl = 5, .tos = dscp, .ttl = 64, .protocol = IPPROTO_ESP,
			.tot_len = htons(outer + esp_len), .frag_off = htons(IP_DF),
			.saddr = sa->x->props.saddr.a4, .daddr = sa->x->id.daddr.a4,
		};
		ip_send_check(ip4);
	} else {
		struct ipv6hdr *ip6 = ipv6_hdr(skb);

		*ip6 = (struct ipv6hdr) {
			.payload_len = htons(esp_len), .nexthdr = IPPROTO_ESP, .hop_limit = 64,
			.saddr = sa->x->props.saddr.in6, .daddr = sa->x->id.daddr.in6,
		};
		ip6_flow_hdr(ip6, dscp, 0);
	}
	esp = ip_esp_hdr(skb);
	esp->spi = sa->x->id.spi;
	esp->seq_no = htonl(++sa->seq);
	if (crypt(sa, (u8 *)esp, esp_len, sa->seq, true))
		return -EIO;
	sa->packets++;
	sa->bytes += inner;
	return 0;
}

/*
 * The way to an outer address. Packets that are forwarded into a tunnel of packet mode come with
 * the Ethernet header with which they were received: the kernel leaves it to the card.
 */
bool espnic_next_hop(struct net_device *dev, u16 family, const xfrm_address_t *daddr, u8 *mac)
{
	struct dst_entry *dst;
	struct neighbour *n;
	bool known;

	if (family == AF_INET) {
		struct flowi4 fl4 = { .daddr = daddr->a4, .flowi4_oif = dev->ifindex };
		struct rtable *rt = ip_route_output_key(dev_net(dev), &fl4);

		if (IS_ERR(rt))
			return false;
		dst = &rt->dst;
	} else {
		struct flowi6 fl6 = { .daddr = daddr->in6, .flowi6_oif = dev->ifindex };

		dst = ip6_route_output(dev_net(dev), NULL, &fl6);
	}
	n = dst->error ? NULL : dst_neigh_lookup(dst, daddr);
	dst_release(dst);
	if (!n)
		return false;
	known = !neigh_event_send(n, NULL);
	if (known)
		neigh_ha_snapshot(mac, n, dev);
	neigh_release(n);
	return known;
}

static netdev_tx_t pass_down(struct nic *nic, struct sk_buff *skb)
{
	unsigned int len = skb->len;
	int err;

	secpath_reset(skb);
	skb->dev = nic->lower;
	err = dev_queue_xmit(skb);
	if (net_xmit_eval(err))
		dev_core_stats_tx_dropped_inc(nic->dev);
	else
		dev_sw_netstats_tx_add(nic->dev, 1, len);
	return NETDEV_TX_OK;
}

static netdev_tx_t refuse(struct nic *nic, struct sk_buff *skb)
{
	count_drop(nic);
	dev_core_stats_tx_dropped_inc(nic->dev);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

/* The kernel has made an ESP packet, without IV and cipher. */
static netdev_tx_t xmit_crypto(struct nic *nic, struct sk_buff *skb, struct xfrm_state *x)
{
	struct xfrm_offload *xo;
	int err = -ENOENT;
	struct sa *sa;
	u64 seq;

	skb = own(skb);
	if (!skb) {
		count_drop(nic);
		return NETDEV_TX_OK;
	}
	xo = xfrm_offload(skb);
	seq = (u64)xo->seq.hi << 32 | xo->seq.low;
	spin_lock_bh(&nic->lock);
	list_for_each_entry(sa, &nic->sas, list) {
		u8 *esp = skb_transport_header(skb);
		unsigned int len = skb_tail_pointer(skb) - esp;

		if (sa->x != x)
			continue;
		err = len < ESP_MIN ? -EINVAL : crypt(sa, esp, len, seq, true);
		break;
	}
	if (!err)
		nic->tx_sealed++;
	spin_unlock_bh(&nic->lock);
	return err ? refuse(nic, skb) : pass_down(nic, skb);
}

netdev_tx_t espnic_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct nic *nic = netdev_priv(dev);
	struct xfrm_offload *xo = xfrm_offload(skb);
	struct xfrm_state *x = NULL;
	xfrm_address_t hop = {};
	struct sa *sa, *use = NULL;
	struct rule *rule;
	struct ethhdr *eth;
	u16 family, outer_family = 0;
	int err = -ENOENT;

	if (xo) {
		struct sec_path *sp = skb_sec_path(skb);

		x = sp->xvec[sp->len - 1];
		/* What was opened on its way in, and goes on, carries its past with it. */
		if (x->xso.dir == XFRM_DEV_OFFLOAD_OUT)
			return xmit_crypto(nic, skb, x);
	}
	if (skb->protocol == htons(ETH_P_IP) &&
	    pskb_may_pull(skb, ETH_HLEN + sizeof(struct iphdr)))
		family = AF_INET;
	else if (skb->protocol == htons(ETH_P_IPV6) &&
		 pskb_may_pull(skb, ETH_HLEN + sizeof(struct ipv6hdr)))
		family = AF_INET6;
	else
		return pass_down(nic, skb);

	skb = own(skb);
	if (!skb) {
		count_drop(nic);
		return NETDEV_TX_OK;
	}
	spin_lock_bh(&nic->lock);
	rule = match(nic, skb, family);
	if (rule && broken) {
		spin_unlock_bh(&nic->lock);
		return pass_down(nic, skb);
	}
	if (!rule || (rule->action == XFRM_POLICY_ALLOW && !rule->reqid)) {
		nic->tx_clear++;
		spin_unlock_bh(&nic->lock);
		return pass_down(nic, skb);
	}
	if (rule->action == XFRM_POLICY_ALLOW)
		list_for_each_entry(sa, &nic->sas, list)
			if (packet_mode(sa) && sa->x->xso.dir == XFRM_DEV_OFFLOAD_OUT &&
			    sa->x->props.reqid == rule->reqid) {
				use = sa;
				break;
			}
	if (use) {
		x = use->x;
		xfrm_state_hold(x);
		hop = x->id.daddr;
		outer_family = x->props.family;
		err = wrap(nic, use, skb, family);
	}
	if (!err)
		nic->tx_sealed++;
	spin_unlock_bh(&nic->lock);
	if (use) {
		/* Tells who listens that a limit is reached. */
		spin_lock_bh(&x->lock);
		if (x->km.state == XFRM_STATE_VALID)
			xfrm_state_check_expire(x);
		spin_unlock_bh(&x->lock);
		xfrm_state_put(x);
	}
	if (err)
		return refuse(nic, skb);
	eth = (struct ethhdr *)skb->data;
	if (!ether_addr_equal(eth->h_source, dev->dev_addr)) {
		ether_addr_copy(eth->h_source, dev->dev_addr);
		if (!espnic_next_hop(dev, outer_family, &hop, eth->h_dest))
			return refuse(nic, skb);
	}
	return pass_down(nic, skb);
}

/* ---- In ---- */

/* The whole number of which a packet carries the low half (RFC 4303, appendix A). */
static u64 infer(const struct sa *sa, u32 low)
{
	u32 top = sa->seq, high = sa->seq >> 32, bottom = top - (WINDOW - 1);

	if (!esn(sa))
		return low;
	if (top >= WINDOW - 1)
		high += low < bottom;
	else
		high -= low >= bottom;
	return (u64)high << 32 | low;
}

static bool replayed(const struct sa *sa, u64 seq)
{
	if (!seq || seq > sa->seq)
		return !seq || (esn(sa) && seq >> 32 == U32_MAX && !(sa->seq >> 32));
	return sa->seq - seq >= WINDOW || test_bit(sa->seq - seq, sa->seen);
}

static void mark_seen(struct sa *sa, u64 seq)
{
	if (seq > sa->seq) {
		u64 step = min_t(u64, seq - sa->seq, WINDOW);

		bitmap_shift_left(sa->seen, sa->seen, step, WINDOW);
		sa->seq = seq;
	}
	__set_bit(sa->seq - seq, sa->seen);
}

/* Opens a packet of packet mode, and leaves the frame that was in it. */
static int unwrap(struct sa *sa, struct sk_buff *skb, const struct outer *outer)
{
	u8 *esp = skb->data + outer->esp, *mac = skb_mac_header(skb), *inner;
	unsigned int len = outer->end - outer->esp, pad;
	u64 seq = infer(sa, get_unaligned_be32(esp + 4));
	__be16 proto;

	if (replayed(sa, seq)) {
		sa->replayed++;
		return -EINVAL;
	}
	if (crypt(sa, esp, len, seq, false)) {
		sa->forged++;
		return -EBADMSG;
	}
	mark_seen(sa, seq);
	inner = esp + ESP_HEAD;
	len -= ESP_HEAD + ICV_LEN;
	pad = inner[len - 2];
	proto = inner[len - 1] == IPPROTO_IPIP ? htons(ETH_P_IP) : htons(ETH_P_IPV6);
	if ((inner[len - 1] != IPPROTO_IPIP && inner[len - 1] != IPPROTO_IPV6) ||
	    len < pad + 2 + sizeof(struct iphdr))
		return -EINVAL;
	sa->packets++;
	sa->bytes += len - pad - 2;
	skb_pull(skb, outer->esp + ESP_HEAD);
	skb_trim(skb, len - pad - 2);
	memmove(skb->data - ETH_HLEN, mac, 2 * ETH_ALEN);
	((struct ethhdr *)(skb->data - ETH_HLEN))->h_proto = proto;
	skb->protocol = proto;
	skb_set_mac_header(skb, -ETH_HLEN);
	skb_reset_network_header(skb);
	skb_reset_transport_header(skb);
	skb_reset_mac_len(skb);
	skb_clear_hash(skb);
	return 0;
}

/* Opens what is for one of our associations. An error: drop it. Zero: it goes up. */
static int open_frame(struct nic *nic, struct sk_buff **pskb, const struct outer *outer)
{
	struct sk_buff *skb = *pskb;
	__be32 spi = *(__be32 *)(skb->data + outer->esp);
	struct sa *sa, *use = NULL;
	struct xfrm_offload *xo;
	struct sec_path *sp;
	int err;

	list_for_each_entry(sa, &nic->sas, list)
		if (sa->x->xso.dir == XFRM_DEV_OFFLOAD_IN && sa->x->id.spi == spi &&
		    sa->x->props.family == outer->family &&
		    xfrm_addr_equal(&sa->x->id.daddr, &outer->daddr, outer->family)) {
			use = sa;
			break;
		}
	if (!use)
		return 0;
	skb = *pskb = own(skb);
	if (!skb || pskb_trim(skb, outer->end))
		return -ENOMEM;
	skb->ip_summed = CHECKSUM_NONE;
	if (packet_mode(use)) {
		err = unwrap(use, skb, outer);
		if (err)
			return err;
	} else {
		u8 *esp = skb->data + outer->esp;
		__be32 low = *(__be32 *)(esp + 4);
		/* Read without the state's lock: at worst it fails at the turn of 2^32. */
		u64 seq = (u64)xfrm_replay_seqhi(use->x, low) << 32 | ntohl(low);

		err = crypt(use, esp, outer->end - outer->esp, seq, false);
	}
	sp = secpath_set(skb);
	if (!sp || sp->len == XFRM_MAX_DEPTH)
		return -ENOMEM;
	xfrm_state_hold(use->x);
	sp->xvec[sp->len++] = use->x;
	sp->olen++;
	xo = xfrm_offload(skb);
	xo->flags = CRYPTO_DONE;
	xo->status = err ? CRYPTO_TUNNEL_ESP_AUTH_FAILED : CRYPTO_SUCCESS;
	nic->rx_opened += !err;
	return 0;
}

rx_handler_result_t espnic_rx(struct sk_buff **pskb)
{
	struct sk_buff *skb = skb_share_check(*pskb, GFP_ATOMIC);
	struct outer outer;
	struct nic *nic;
	int err;

	if (!skb)
		return RX_HANDLER_CONSUMED;
	nic = rcu_dereference(skb->dev->rx_handler_data);
	if (!netif_running(nic->dev)) {
		kfree_skb(skb);
		return RX_HANDLER_CONSUMED;
	}
	if (!skb_vlan_tag_present(skb) && parse_outer(skb, 0, &outer)) {
		spin_lock_bh(&nic->lock);
		err = open_frame(nic, &skb, &outer);
		nic->dropped += !!err;
		spin_unlock_bh(&nic->lock);
		if (err) {
			dev_core_stats_rx_dropped_inc(nic->dev);
			kfree_skb(skb);
			return RX_HANDLER_CONSUMED;
		}
	}
	dev_sw_netstats_rx_add(nic->dev, skb->len + ETH_HLEN);
	skb->dev = nic->dev;
	*pskb = skb;
	return RX_HANDLER_ANOTHER;
}
