/* SPDX-License-Identifier: GPL-2.0 */
/*
 * espnic: a simulated network card with IPsec (ESP) offload, over any other Ethernet device. It is
 * test equipment: it shows that software drives a card by the kernel's xfrm offload framework as it
 * should. It is not fast, and protects nobody's traffic.
 *
 *	ip link add p0 link LOWER type espnic
 *
 * It takes and refuses what mlx5 does. "crypto": the kernel builds ESP, the card does AES-GCM.
 * "packet": the card has policies and associations of its own, and does all of ESP in tunnel mode.
 * Everything else passes both ways as it is.
 */

#ifndef ESPNIC_H
#define ESPNIC_H

#include <crypto/aead.h>
#include <linux/netdevice.h>
#include <net/esp.h>
#include <net/xfrm.h>

#define IV_LEN		8
#define ICV_LEN		16
#define WINDOW		256

/* An association in the card. */
struct sa {
	struct list_head list;
	struct xfrm_state *x;
	struct crypto_aead *aead;
	struct aead_request *request;
	u64 seq;		/* out: the last one used; in: the highest one accepted */
	DECLARE_BITMAP(seen, WINDOW);	/* bit n: seq - n came */
	u64 packets, bytes, told_packets, told_bytes;
	u64 packets_max, bytes_max;	/* of the day it came: mlx5 hears of no change either */
	u32 replayed, forged;
	u8 aad[12 + IV_LEN];	/* here, since a stack cannot be in a scatterlist */
	u8 iv[IV_LEN];
};

/* A policy in the card. */
struct rule {
	struct list_head list;
	struct xfrm_selector sel;
	u32 priority, reqid;
	u8 dir, action;
};

struct nic {
	struct net_device *dev, *lower;
	netdevice_tracker lower_tracker;
	spinlock_t lock;	/* all below; inside of a state's lock, never around it */
	struct list_head sas, rules;	/* the newest association first, the oldest policy first */
	unsigned int sa_count;
	u64 tx_sealed, rx_opened, tx_clear, dropped;
};

static inline bool esn(const struct sa *sa)
{
	return sa->x->props.flags & XFRM_STATE_ESN;
}

static inline bool packet_mode(const struct sa *sa)
{
	return sa->x->xso.type == XFRM_DEV_OFFLOAD_PACKET;
}

/* path.c */
netdev_tx_t espnic_xmit(struct sk_buff *skb, struct net_device *dev);
rx_handler_result_t espnic_rx(struct sk_buff **pskb);
bool espnic_next_hop(struct net_device *dev, u16 family, const xfrm_address_t *daddr, u8 *mac);

/* control.c */
extern const struct xfrmdev_ops espnic_xfrm_ops;

#endif
